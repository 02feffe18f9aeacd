"""`# fmt: skip` stands on tables and on signatures only; `ruff format` shapes everything else."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from support.rules.package_imports import package_files

__all__ = ["unformatted"]

LITERALS = (ast.Dict, ast.List, ast.Set, ast.Tuple)
ROWS = 3  # a table has three rows at least
FIELDS = 4  # one record may stand for a table if it has that many fields


def unformatted(root: Path) -> list[str]:
    """Check that each `# fmt: skip` stands at the end of a table or of a signature."""
    problems = []
    for path in [*package_files(root), *sorted((root / "tests").rglob("*.py"))]:
        text = path.read_text("utf-8")
        if "fmt: skip" not in text and "fmt: off" not in text:
            continue
        allowed = set(_lines(ast.parse(text), at_top=True))
        named = {number for number, line in enumerate(text.split("\n"), 1) if "fmt: " in line}
        if named <= allowed and "fmt: off" not in text:
            continue  # no token is worth the time
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT or "fmt: " not in token.string:
                continue
            line = token.start[0]
            if "fmt: off" in token.string or line not in allowed:
                name = path.relative_to(root)
                problems.append(f"{name}:{line}: `{token.string}` on no table and no signature")
    return problems


def _lines(node: ast.AST, at_top: bool) -> Iterator[int]:
    """Yield the lines on which a `# fmt: skip` may stand."""
    for child in ast.iter_child_nodes(node):
        for decorator in getattr(child, "decorator_list", ()):
            if any(len(_rows(part)) > 1 for part in ast.walk(decorator)):
                yield decorator.end_lineno or decorator.lineno
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from range(child.lineno, child.body[0].lineno)
            yield from _lines(child, at_top=False)
        elif at_top and isinstance(child, ast.Assign | ast.AnnAssign) and _is_table(child.value):
            yield child.end_lineno or child.lineno
        else:
            yield from _lines(child, at_top and isinstance(child, ast.ClassDef | ast.If))


def _is_table(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call) and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.Call):
        return not value.args and len(value.keywords) >= FIELDS
    return value is not None and len(_rows(value)) >= ROWS


def _rows(value: ast.AST) -> list[ast.expr] | list[ast.expr | None]:
    if not isinstance(value, LITERALS):
        return []
    return value.keys if isinstance(value, ast.Dict) else value.elts
