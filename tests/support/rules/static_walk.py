"""A walk over the imports of files, as an editor follows them: nothing is executed.

Imports for type checkers alone are not followed. Rows of the catalogue and doors are: their modules
stand there in full.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LATE = ("Rule", "Door", "PropertyDoor")


def file_of(module: str) -> Path | None:
    """Return the file of a module of the package; None for what is none."""
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if module.split(".")[0] == "vklab" and file.is_file():
            return file
    return None


def named(tree: ast.AST) -> Iterator[str]:
    """Yield the modules, and possibly names in them, that a file imports or names for later."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from named(other)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split("[")[0] in LATE:
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))
        yield from named(node)


def reached(start: str) -> set[str]:
    """Return the paths below the package's folder that imports from a module lead to."""
    found: set[Path] = set()
    left = [start]
    while left:
        module = left.pop()
        parts = module.split(".")
        for file in filter(None, (file_of(".".join(parts[: n + 1])) for n in range(len(parts)))):
            if file not in found:
                found.add(file)
                left += named(ast.parse(file.read_text("utf-8")))
    return {str(file.relative_to(ROOT / "vklab")) for file in found}
