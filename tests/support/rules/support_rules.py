"""Rules of tests/ itself: what lies where, and that nothing in tests/support/ is left over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["crowded", "stray", "unused", "without_path"]

FOLDER_FILES = 20
FOUND_BY_PYTEST = re.compile(r"(conftest|test_\w+)\.py")
# Imports, in code that a test gives to a child too, and names of modules as text.
OF_FOLDER = re.compile(r"from support\.(\w+) import (\([^)]*\)|[^\n;]+)")
OF_MODULE = re.compile(r"\bsupport\.(\w+\.\w+)")
COMMAND = re.compile(r"python3? tests/support/(\w+/\w+)\.py")
PROGRAM = '\nif __name__ == "__main__":\n'
PATH = "sys.path.insert(0, str(Path(__file__).resolve().parents[2]))"


def stray(root: Path) -> list[str]:
    """Check that tests/ has no Python file that pytest does not read."""
    return [
        f"{path.relative_to(root)}: helpers are in tests/support/, by subject"
        for path in sorted((root / "tests").glob("*.py"))
        if not FOUND_BY_PYTEST.fullmatch(path.name)
    ]


def crowded(root: Path) -> list[str]:
    """Check that helpers lie in folders by subject, and that each folder is small."""
    support = root / "tests" / "support"
    problems = [
        f"{path.relative_to(root)}: has no subject"
        for path in sorted(support.glob("*.py"))
        if path.name != "__init__.py"
    ]
    for folder in sorted(path for path in support.iterdir() if path.is_dir()):
        count = sum(path.is_file() for path in folder.iterdir())
        if count > FOLDER_FILES:
            problems.append(f"{folder.relative_to(root)}: {count} files; which two subjects?")
    return problems


def unused(root: Path) -> list[str]:
    """Check that a test imports every helper, if by way of another, or a page has its command."""
    left = modules(root)
    documented = commands(root)
    tests = [
        path for path in (root / "tests").rglob("*.py") if FOUND_BY_PYTEST.fullmatch(path.name)
    ]
    reached = [*tests, *(left.pop(name) for name in documented)]
    while reached:
        for name in imported(reached.pop().read_text("utf-8")):
            if name in left:
                reached.append(left.pop(name))
    return [
        f"tests/support/{name}.py: no test imports this, no page has it as a command"
        for name in sorted(left)
    ]


def without_path(root: Path) -> list[str]:
    """Check that a command that imports helpers finds them when its file is run."""
    found = modules(root)
    texts = {name: found[name].read_text("utf-8") for name in commands(root)}
    return [
        f"tests/support/{name}.py: imports helpers, and does not put tests/ on the path"
        for name, text in texts.items()
        if list(imported(text)) and PATH not in text
    ]


def modules(root: Path) -> dict[str, Path]:
    """Return the files of helpers by subject and name."""
    return {
        f"{path.parent.name}/{path.stem}": path
        for path in sorted((root / "tests" / "support").glob("*/*.py"))
        if path.name != "__init__.py"
    }


def commands(root: Path) -> list[str]:
    """Return the helpers that a page has as commands, and that do something when they are run."""
    pages = [root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    named = {name for page in pages for name in COMMAND.findall(page.read_text("utf-8"))}
    return [
        name
        for name, path in modules(root).items()
        if name in named and PROGRAM in path.read_text("utf-8")
    ]


def imported(text: str) -> Iterator[str]:
    """Yield the helpers that a file names in imports, or in the text of code."""
    for folder, names in OF_FOLDER.findall(text):
        yield from (f"{folder}/{name}" for name in re.findall(r"(?:^|,|\()\s*(\w+)", names))
    yield from (name.replace(".", "/") for name in OF_MODULE.findall(text))
