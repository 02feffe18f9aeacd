"""Rules of waits in tests: for a condition, up to one limit, and no time of a machine is judged.

Text that a test gives to a child is not read: what hangs there is ended by the test.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["clocked", "limited", "sleeping"]

HOME = "support/runs/waits.py"
# A limit that a test wants to see at work is short.
SHORT_S = 5
SLEEP = re.compile(r"(.*\btime\.)?sleep( as \w+)?")
WORDS = {"timeout", "limit_s"}
WAITS = {"acquire", "communicate", "join", "result", "wait", "until"}
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}


def sleeping(root: Path) -> list[str]:
    """Check that no test sleeps, but by way of the few functions that say what for."""
    return [
        f"{place}: sleeps; support.runs.waits has until(), hang() and work()"
        for place, node in _nodes(root)
        if isinstance(node, ast.Attribute | ast.alias)
        and _name(node) == "sleep"
        and SLEEP.fullmatch(ast.unparse(node))
    ]


def limited(root: Path) -> list[str]:
    """Check that waits have the limit that all have."""
    return [
        f"{place}: a limit of its own; waits.LIMIT_S is that of all waits"
        for place, node in _nodes(root)
        if isinstance(node, ast.Call) and any(map(_is_long, _limits(node)))
    ]


def clocked(root: Path) -> list[str]:
    """Check that no test asserts that something took less than a time on the wall."""
    return [
        f"{place}: an upper bound of time; it measures the machine's other work"
        for place, node in _nodes(root)
        if isinstance(node, ast.Assert) and any(map(_is_bound, ast.walk(node.test)))
    ]


def _nodes(root: Path) -> Iterator[tuple[str, ast.AST]]:
    for path in sorted((root / "tests").rglob("*.py")):
        name = path.relative_to(root / "tests").as_posix()
        for node in _parsed(path.read_text("utf-8")) if name != HOME else ():
            yield f"tests/{name}:{getattr(node, 'lineno', 0)}", node


@functools.cache
def _parsed(text: str) -> tuple[ast.AST, ...]:
    kinds = ast.Attribute | ast.alias | ast.Call | ast.Assert
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))


def _name(node: ast.AST) -> str:
    """Return the last part of a name, or of what an import takes."""
    return str(next((getattr(node, of) for of in ("attr", "id", "name") if hasattr(node, of)), ""))


def _limits(call: ast.Call) -> list[ast.expr]:
    """Return what a call gives as the limit of a wait."""
    first = call.args[:1] if _name(call.func) in WAITS else []
    return first + [word.value for word in call.keywords if word.arg in WORDS]


def _is_long(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and node.value > SHORT_S
    )


def _is_bound(node: ast.AST) -> bool:
    """Tell whether this asks a reading of a clock to be below something."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    return any(
        _reads(sides[number if isinstance(operator, ast.Lt | ast.LtE) else number + 1])
        for number, operator in enumerate(node.ops)
        if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    )


def _reads(side: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and _name(n.func) in CLOCKS for n in ast.walk(side))
