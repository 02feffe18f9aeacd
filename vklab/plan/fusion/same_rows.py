"""join_rows: compute queries, keys and values, or other products of the same rows, at once."""

from __future__ import annotations

import functools
from dataclasses import replace

from vklab.plan import block_units
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

SHARED = ("a_buffer", "w_buffer")
# Further matrices of one dispatch: queries, keys and values are three.
MOST_JOINED = 2
FIXED = ("K", "ROWS", "SUBGROUP")  # constants that do not depend on sizes of workgroups


def join_rows(flow: Flow) -> None:
    """Join each product of a few rows by weights in blocks to the last one, if both read the same.

    All that the later one reads is there when the earlier one runs.
    """
    before: int | None = None
    for number, dispatch in list(flow.alive()):
        if dispatch.kernel in block_units.KERNELS:
            is_joined = before is not None and flow.fuse(
                before, number, functools.partial(_joined, flow)
            )
            before = before if is_joined else number


def _joined(flow: Flow, one: Dispatch, other: Dispatch) -> Dispatch | None:
    """Return both as one dispatch; None if they do not read the same rows."""
    for name in SHARED:
        values = [dict(each.reads).get(name) for each in (one, other)]
        places = [
            value and (flow.roots[value.name], flow.slices.get(value.name, 0)) for value in values
        ]
        if places[0] != places[1]:
            return None
    return joined(one, other)


def joined(one: Dispatch, other: Dispatch) -> Dispatch | None:
    """Return two products of the same normalised rows of A as one dispatch; None if they differ.

    Args:
        one: a product, or several that are joined already.
        other: the product to add, as `of` returns it.
    """
    count = int(one.define_values.get("FURTHER", "0")) + 1
    own = tuple(pair for pair in one.defines if pair[0] != "FURTHER")
    first, second = one.push_values, other.push_values
    alike = [
        (each.kernel, defines, push["m"], push["epsilon"], *map(each.constant_values.get, FIXED))
        for each, defines, push in ((one, own, first), (other, other.defines, second))
    ]
    is_plain = not any(each.epilogue or each.prologue for each in (one, other))
    is_normed = (dict(own)["NORM"], dict(own)["GATED"]) == ("1", "0")
    if alike[0] != alike[1] or not is_plain or not is_normed or count > MOST_JOINED:
        return None
    ends = {"n1": first["n"]} if count == 1 else {"n2": first["n"]}
    push = first | {"n": first["n"] + second["n"], "n2": first["n"] + second["n"]} | ends
    made = replace(
        one,
        reads=(*one.reads, (f"b{count}_buffer", dict(other.reads)["b_buffer"])),
        writes=(*one.writes, (f"y{count}_buffer", other.writes[0][1])),
        push=tuple(push.items()),
        flops=one.flops + other.flops,
        defines=(*own, ("FURTHER", str(count))),
    )
    return block_units.sized(made, block_units.MODEST)
