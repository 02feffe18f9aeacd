"""Slices of a notebook: the statements that a later cell needs, without the demos between them.

Decides by names alone: a change in place or inside a block is not seen.

Source: Weiser, "Program Slicing", 1981
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Sequence

__all__ = ["bound", "globals_read", "needed_statements", "pruned"]


def globals_read(text: str) -> set[str]:
    """Return the global names that a text reads, in its functions too.

    The table of symbols is made from the syntax tree: code is never generated, because CPython
    copies what stands in `finally`, and so doubles it with each level.
    """
    changed = {
        node.target.id
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    whole = symtable.symtable(text, "cell", "exec")
    names: set[str] = set()
    left = [whole]
    while left:
        scope = left.pop()
        left += scope.get_children()
        read = {
            symbol.get_name()
            for symbol in scope.get_symbols()
            if (symbol.is_referenced() or symbol.get_name() in changed)
            and (symbol.is_global() or scope is whole)
        }
        names |= read if scope is whole else read - {"__name__"}
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
        names = bound(node)
        if not whole and not names & needed and not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        kept.append(node)
        if not isinstance(node, ast.AugAssign):
            needed -= names
        needed |= globals_read(ast.unparse(node))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            needed -= names  # a function that calls itself reads its own name
    return kept[::-1]


def pruned(node: ast.stmt, needed: set[str]) -> ast.stmt:
    """Return an import without the names that nobody reads any more."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        node.names = [
            alias
            for alias in node.names
            if (alias.asname or alias.name).partition(".")[0] in needed
        ]
    return node


def bound(node: ast.stmt) -> set[str]:
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
