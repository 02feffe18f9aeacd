"""Definitions of exercises as a release ships them: without the cases, the oracle and comments.

What remains gives feedback on frozen public cases. Parameters of other variants are blanked, and
what only the removed methods and parameters used is removed, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vklab_course import slices
from vklab_course.author.lab import LabError

__all__ = ["SECRET", "is_exercise", "stripped"]

SECRET = ("cases", "expected", "questions")


def is_exercise(node: ast.stmt) -> str:
    """Return the id of the exercise that a class defines, or ""."""
    for decorator in getattr(node, "decorator_list", ()):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("exercise"):
            first = decorator.args[0] if decorator.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                return first.value
    return ""


def stripped(
    text: str, variants: Mapping[str, Sequence[Mapping[str, Any]]], name: str = "definitions"
) -> str:
    """Return the text of a file of definitions without what students must not have.

    Args:
        text: the file.
        variants: the parameters of each exercise's variants, {} for those of other classes. They
            replace the code that makes them.
        name: name of the file, for messages.

    Raises LabError if what remains still asks for the oracle.
    """
    tree = ast.parse(text)
    _require_classes(tree, name)
    for node in tree.body:
        identifier = is_exercise(node)
        if identifier and isinstance(node, ast.ClassDef):
            node.body = [s for s in node.body if not _secret(s)]
            _write_variants(node, variants.get(identifier, ()))
    _drop_docstrings(tree)
    _drop_unreachable(tree)
    for use in ast.walk(tree):
        if (
            isinstance(use, ast.Attribute)
            and use.attr in SECRET
            and (isinstance(use.value, ast.Name) and use.value.id in ("self", "cls"))
        ):
            raise LabError(
                f"{name}, line {use.lineno}: compare uses {ast.unparse(use)}, which a "
                "release does not have; use case.expected"
            )
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _require_classes(tree: ast.Module, name: str) -> None:
    """Raise LabError for an exercise that is not a class at the left margin: it would be lost."""
    known = {id(made) for node in tree.body for made in getattr(node, "decorator_list", ())}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and id(node) not in known
            and (ast.unparse(node.func) in ("exercise", "exercise.exercise"))
        ):
            raise LabError(
                f"{name}, line {node.lineno}: an exercise is made by a call; a release "
                "keeps classes that `@exercise(...)` decorates"
            )


def _secret(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in SECRET


def _write_variants(node: ast.ClassDef, parameters: Sequence[Mapping[str, Any]]) -> None:
    for decorator in node.decorator_list:
        for keyword in getattr(decorator, "keywords", ()):
            if keyword.arg == "variants":
                values = tuple(dict(one) for one in parameters)
                keyword.value = ast.parse(repr(values), mode="eval").body


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
            if not node.body and not isinstance(node, ast.Module):
                node.body = [ast.Pass()]


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the left margin binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    targets: Iterable[ast.expr] = ()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _drop_unreachable(tree: ast.Module) -> None:
    """Keep the exercises, and the statements whose names they reach."""
    body = [node for node in tree.body if _bound(node) != {"__all__"}]
    roots = [node for node in body if is_exercise(node)]
    needed: set[str] = set()
    kept: set[int] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) in kept:
            continue
        kept.add(id(node))
        needed |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        needed |= _quoted(node)
        waiting += [other for other in body if id(other) not in kept and _bound(other) & needed]
    tree.body = []
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            tree.body.append(node)
        elif id(node) in kept:
            tree.body.append(slices.pruned(node, needed))
    names = sorted(n for node in tree.body if is_exercise(node) for n in _bound(node))
    listed = ast.List([ast.Constant(name) for name in names], ast.Load())
    place = next(
        (
            n
            for n, node in enumerate(tree.body)
            if not isinstance(node, ast.Import | ast.ImportFrom)
        ),
        0,
    )
    tree.body.insert(place, ast.Assign([ast.Name("__all__", ast.Store())], listed, lineno=1))


def _quoted(node: ast.stmt) -> set[str]:
    """Return the names in annotations that are written as text."""
    texts = {
        n.value
        for n in ast.walk(node)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.isidentifier()
    }
    return texts
