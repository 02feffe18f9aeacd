"""Slices of a notebook: the statements that a later cell needs, without the demos between them.

Decides by names alone: what is changed in place, or inside of a block, is not seen.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Sequence

__all__ = ["globals_read", "needed_statements"]


def globals_read(text: str) -> set[str]:
    """Return the global names that a text reads, in its functions too."""
    found: set[str] = set()
    tables = [symtable.symtable(text, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
                found.add(symbol.get_name())
    return found


def needed_statements(body: Sequence[ast.stmt], needed: set[str], whole: bool) -> list[ast.stmt]:
    """Return the imports of a cell, and the statements that name something that is needed.

    Args:
        needed: the names that later cells read; changed to those that the cells before must give.
        whole: keep the cell as it is.
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
            needed -= bound  # what calls itself
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
