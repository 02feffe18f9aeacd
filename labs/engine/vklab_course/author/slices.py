"""Slices of a notebook: the statements that a later cell needs, without the demos between them.

Decides by names alone: a change in place or inside a block is not seen.

Source: Weiser, "Program Slicing", 1981
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Sequence
from types import CodeType

__all__ = ["globals_read", "needed_statements"]

READS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")


def globals_read(text: str) -> set[str]:
    """Return the global names that a text reads, in its functions too."""
    names: set[str] = set()
    whole = compile(text, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    left = [whole]
    while left:
        code = left.pop()
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        steps = list(dis.get_instructions(code))
        read = {step.argval for step in steps if step.opname in READS}
        if code is not whole:  # the body of a class reads its own names, which are not global
            read -= {"__name__", *(s.argval for s in steps if s.opname == "STORE_NAME")}
        names |= read
    return names


def needed_statements(body: Sequence[ast.stmt], needed: set[str], whole: bool) -> list[ast.stmt]:
    """Return the imports of a cell, and the statements that bind a needed name.

    Args:
        body: the statements of the cell.
        needed: the names that later cells read; changed to the names that earlier cells must bind.
        whole: keep every statement.
    """
    kept: list[ast.stmt] = []
    for node in reversed(body):
        bound = _bound(node)
        if not whole and not bound & needed and not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        kept.append(node)
        if not isinstance(node, ast.AugAssign):
            needed -= bound
        needed |= globals_read(ast.unparse(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            needed -= bound  # a function that calls itself reads its own name
    return kept[::-1]


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = (n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}
