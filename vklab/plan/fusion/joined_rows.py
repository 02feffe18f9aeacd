"""join_rows: compute queries, keys and values, or other products of the same rows, by one dispatch.

Visited by lab 19.
"""

from __future__ import annotations

import functools

from vklab.plan import block_units
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

__all__ = ["join_rows"]

SHARED = ("a_buffer", "w_buffer")


def join_rows(flow: Flow) -> None:
    """Join each product of a few rows by weights in blocks to the last one, if both read the same.

    All that the later one reads is there when the earlier one runs.
    """
    before: int | None = None
    for number, dispatch in list(flow.alive()):
        if dispatch.kernel in block_units.KERNELS:
            is_joined = before is not None and flow.fuse(
                before, number, functools.partial(_joined, flow))  # fmt: skip
            before = before if is_joined else number


def _joined(flow: Flow, one: Dispatch, other: Dispatch) -> Dispatch | None:
    """Return both as one dispatch; None if they do not read the same rows."""
    for name in SHARED:
        values = [dict(each.reads).get(name) for each in (one, other)]
        places = [value and (flow.roots[value.name], flow.slices.get(value.name, 0))
                  for value in values]  # fmt: skip
        if places[0] != places[1]:
            return None
    return block_units.joined(one, other)
