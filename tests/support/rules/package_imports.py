"""The imports of the package's files, as `architecture_rules` reads them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COURSE", "Import", "files_of", "imports_of", "package_files", "parsed"]

parsed = functools.cache(ast.parse)  # several rules read each file
# Packages of the course, and the folder that each is in.
COURSE = {"vklab_course": "labs/engine/vklab_course", "vklab_labs": "labs/lib"}


def package_files(root: Path) -> list[Path]:
    """Return the Python files of vklab and of the course under a project root."""
    folders = (root / "vklab", root / "labs/engine", root / "labs/lib")
    return sorted(
        p for folder in folders for p in folder.rglob("*.py") if "__pycache__" not in p.parts
    )


@dataclass(frozen=True)
class Import:
    """One import: the module, the names taken from it, and where it stands.

    `is_for_types` says that only type checkers see it.
    """

    path: str
    line: int
    module: str
    names: tuple[str, ...]
    function: str
    is_for_types: bool


def files_of(root: Path, item: Import) -> Iterator[Path]:
    """Yield the files of ours that an import reaches."""
    first, *steps = item.module.split(".")
    folder = root.joinpath(COURSE.get(first, first), *steps)
    for name in item.names or ("__init__",):
        candidates = (
            folder / f"{name}.py",
            folder / name / "__init__.py",
            folder / "__init__.py",
            folder.with_suffix(".py"),
        )
        yield from [path for path in candidates if path.exists()][:1]


def imports_of(root: Path, path: Path) -> tuple[Import, ...]:
    """Return every import of a file, those under TYPE_CHECKING and inside functions too."""
    package = path.relative_to(root).with_suffix("").parts[:-1]
    return _imports(str(path.relative_to(root)), path.read_text("utf-8"), package)


@functools.cache  # several rules ask for the imports of each file
def _imports(name: str, text: str, package: tuple[str, ...]) -> tuple[Import, ...]:
    found: list[Import] = []

    def visit(node: ast.AST, function: str, typed: bool) -> None:
        def note(module: str, *names: str) -> None:
            found.append(Import(name, node.lineno, module, names, function, typed))

        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = function or node.name
        if isinstance(node, ast.If):
            typed = typed or ast.unparse(node.test) == "TYPE_CHECKING"
        if isinstance(node, ast.Import):
            for alias in node.names:
                note(alias.name)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            note(
                ".".join([*start, *([node.module] if node.module else [])]),
                *(alias.name for alias in node.names),
            )
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == "import_module" and isinstance(node.args[0], ast.Constant):
                note(str(node.args[0].value))
        for child in ast.iter_child_nodes(node):
            visit(child, function, typed)

    visit(parsed(text), "", False)
    return tuple(found)
