"""Dispatches of the kernels that compute several products of one row, or few long columns.

Which products they are is decided in `row_chains`. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from vklab.base.names import internal
from vklab.ops import dtypes, registry
from vklab.plan import block_units
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Dtype of an element -> format of the weights, as `lib/block_floats` calls it.
FORMATS = {"float": "F32", "half": "F16"}
# One workgroup: the most invocations, and columns of a subgroup.
HEAD_LANES, HEAD_COLUMNS = 1024, 4
# Many workgroups: invocations of each, and loads ahead of a lane.
CHAIN_LANES, CHAIN_DEPTH = 256, 4
# Sums so long, of so few columns, are shared by many workgroups; these, and their invocations.
LONG_K, FEW_COLUMNS, MOST_PARTS, LONG_LANES = 2048, 16, 512, 256


class Product(NamedTuple):
    """A product of one row: its place in the plan, and its dispatch, with B dense along k.

    `bias` is added to the result, and `relu` tells whether a ReLU follows.
    """

    number: int
    dispatch: Dispatch
    k: int
    n: int
    bias: TensorInfo | None
    relu: bool

    @property
    def elements(self) -> int:
        """Return the number of elements of B."""
        return self.k * self.n

    @property
    def is_long(self) -> bool:
        """Return whether a sum is long enough for several workgroups, and columns are few."""
        return self.k >= LONG_K and self.n <= FEW_COLUMNS

    @property
    def kind(self) -> tuple[str, bool]:
        """Return what all products of a dispatch have in common: the dtype, and biases or none."""
        return self.dispatch.define_values["T"], self.bias is not None


def dispatches(
    part: Sequence[Product], softmax: Dispatch | None, is_head: bool, info: DeviceInfo
) -> tuple[Dispatch, ...]:
    """Return the dispatch of some products, after the one that makes its counters zero, if any.

    Args:
        part: the products, each of which reads the result of the one before.
        softmax: the Softmax of the last result, which the dispatch computes, too.
        is_head: whether one workgroup computes all of them.
        info: the device.
    """
    first, last = part[0], part[-1]
    dtype, bias = first.kind
    defines = first.dispatch.define_values
    result, kind = (softmax or last.dispatch).writes[0], first.dispatch.reads[0][1].dtype
    reads = [("x_buffer", first.dispatch.reads[0][1])]
    for number, each in enumerate(part):
        reads.append((f"b{number}_buffer", each.dispatch.reads[1][1]))
        reads += [(f"c{number}_buffer", each.bias)] if each.bias else []
    made = Dispatch(
        "matvec_head",
        tuple(reads),
        (("z_buffer", result[1]),),
        (1, 1, 1),
        (
            ("sizes", (first.k, *(each.n for each in part))),
            ("relus", sum(1 << n for n, each in enumerate(part) if each.relu)),
        ),
        (
            *((name, defines[name]) for name in ("T", "T_LOAD")),
            *dtypes.type_defines("Y", kind)[::2],
            *dtypes.type_defines("Z", result[1].dtype)[::2],
            ("FORMAT", FORMATS[dtype]),
            ("LAYERS", str(len(part))),
            ("BIAS", str(int(bias))),
            ("SOFTMAX", str(int(softmax is not None))),
        ),
        flops=sum(each.dispatch.flops for each in part),
    )
    if part[0].is_long:
        return _long(made, part[0], info)
    longest = max(each.k for each in part)
    if is_head:
        loads = head_loads(part, info)
        widest = max(each.n for each in part)
        lanes = min(HEAD_LANES, info.subgroup_size << (widest - 1).bit_length())
        at_once = min(HEAD_COLUMNS, -(-widest * info.subgroup_size // lanes))
        constants = {
            "SUBGROUP": info.subgroup_size,
            "WORKGROUP": lanes,
            "DEPTH": loads,
            "AT_ONCE": at_once,
            "MOST": max(longest, widest),
        }
        return (replace(made, constants=tuple(constants.items())),)
    return _tickets(made, part, result[1], info)


def head_loads(part: Sequence[Product], info: DeviceInfo) -> int:
    """Return the loads that a lane makes for the longest row of some products."""
    unit = block_units.unit(FORMATS[part[0].kind[0]])
    return -(-max(each.k for each in part) // (unit * info.subgroup_size))


def _long(made: Dispatch, product: Product, info: DeviceInfo) -> tuple[Dispatch, Dispatch]:
    """Return a product of few long columns, and before it what makes its counter zero."""
    whole = LONG_LANES * block_units.unit(made.define_values["FORMAT"])
    part = whole * -(-product.k // (whole * MOST_PARTS))
    parts = -(-product.k // part)
    _, result = made.writes[0]
    counters = TensorInfo(internal(result.name, "counters"), "uint32", (1,))
    sums = TensorInfo(internal(result.name, "parts"), "float32", (parts, product.n))
    constants = (
        ("SUBGROUP", info.subgroup_size),
        ("WORKGROUP", LONG_LANES),
        ("N", product.n),
        ("PARTS", parts),
    )
    return _clear(counters), replace(
        made,
        kernel="matvec_long",
        workgroups=(parts, 1, 1),
        constants=constants,
        writes=(("parts_buffer", sums), ("counters_buffer", counters), *made.writes),
        push=(("k", product.k), ("part", part), ("relus", int(product.relu))),
    )


def _clear(counters: TensorInfo) -> Dispatch:
    return Dispatch(
        "clear_words",
        (),
        (("y_buffer", counters),),
        (1, 1, 1),
        (("count", counters.count),),
        (),
        (("WORKGROUP", 64),),
    )


def _tickets(
    made: Dispatch, part: Sequence[Product], result: TensorInfo, info: DeviceInfo
) -> tuple[Dispatch, Dispatch]:
    """Return a dispatch of many workgroups, and before it that which makes its counters zero.

    Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016
    """
    columns = CHAIN_LANES // info.subgroup_size
    counters = TensorInfo(internal(result.name, "counters"), "uint32", (len(part) + 1,))
    kind = part[0].dispatch.reads[0][1].dtype
    between = TensorInfo(internal(result.name, "rows"), kind, (sum(e.n for e in part[:-1]),))
    writes = [("y_buffer", between), ("counters_buffer", counters), *made.writes]
    if made.define_values["SOFTMAX"] == "1":
        row = TensorInfo(internal(result.name, "row"), kind, (part[-1].n,))
        writes.insert(2, ("last_buffer", row))
    constants = {
        "SUBGROUP": info.subgroup_size,
        "WORKGROUP": CHAIN_LANES,
        "DEPTH": CHAIN_DEPTH,
        "MOST": max(each.k for each in part),
    }
    workgroups = registry.grid(sum(-(-each.n // columns) for each in part))
    return _clear(counters), replace(
        made,
        kernel="matvec_chain",
        writes=tuple(writes),
        workgroups=workgroups,
        constants=tuple(constants.items()),
    )
