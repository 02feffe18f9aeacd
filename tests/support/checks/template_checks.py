"""Check every plan that a template makes, as `plan_checks` checks a plan that is made in full."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vklab.plan.chunk import Chunk
from vklab.plan.lowering import Lowered
from vklab.plan.templates import tracing, writer

Report = Callable[[Callable[[], list[str]]], None]


def install(
    report: Report, unchecked: Callable[[str], Any], lowered: Callable[[], Lowered],
    check: Callable[[Chunk, Lowered], list[str]],
) -> None:  # fmt: skip
    """Check the chunks of templates from now on.

    Args:
        report: fails the running test for the problems that a function returns.
        unchecked: a context in which other checks do not look at plans, whose sizes are symbols.
        lowered: returns the dispatches of the last chunk that was lowered.
        check: returns what is wrong with a chunk that was made for dispatches.
    """
    trace, write = tracing.trace, writer.write

    @functools.wraps(trace)
    def unlooked(*given: Any) -> Any:
        with unchecked("its sizes are symbols"):
            return trace(*given)

    @functools.wraps(write)
    def checked(record: Any, variables: Any, made: Any) -> Callable[..., Any]:
        chunk = getattr(made, "chunks", [None])[-1]
        if not chunk or not chunk.steps:
            return write(record, variables, made)
        both = write(record, variables, (made, lowered()))

        def build(*sizes: int) -> Any:
            found = both(*sizes)
            if found is not None:
                report(lambda: check(found[0].chunks[-1], found[1]))
            return found and found[0]

        return build

    tracing.trace, writer.write = unlooked, checked
