"""fuse_conv_pools: compute the largest results of a small convolution's windows by one dispatch.

Launches and waits take most of the time of small images, so that few lanes would be busy anyway.
Visited by lab 10.
"""

from __future__ import annotations

import functools
import math

from vklab.ops import dtypes, registry
from vklab.ops.dtypes import FLOATS
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

# Multiplications of both dispatches together, places of a window of the pool, terms of a lane, and
# invocations of a workgroup.
MOST_PRODUCTS, MOST_PLACES, TERMS, WORKGROUP = 1 << 21, 16, 4, 64
RELU = "onnx::relu(a)"


def fuse_conv_pools(flow: Flow) -> None:
    """Merge a maximum over windows with the small convolution before it."""
    lanes = flow.info.subgroup_size
    whole = flow.info.limit("minSubgroupSize") == lanes
    if flow.is_cpu or not whole or "shuffle" not in flow.info.subgroup_operations:
        return
    for number, dispatch in flow.alive():
        if dispatch.kernel == "pool" and not dispatch.prologue and not dispatch.epilogue:
            read = dispatch.reads[0][1]
            whole = not flow.slices.get(read.name, 0)
            maker = flow.maker(read, number) if whole else None
            flow.fuse(number, maker, functools.partial(one_dispatch, lanes=lanes))


def one_dispatch(pool: Dispatch, conv: Dispatch, lanes: int) -> Dispatch | None:
    """Return a convolution and the maximum over its result as one dispatch, or None.

    Args:
        pool: the dispatch that reads the convolution's result.
        conv: the convolution.
        lanes: the subgroup size.
    """
    push, after, relu = conv.push_values, pool.push_values, _relu(conv)
    defines, result = conv.define_values, pool.writes[0][1]
    tensors = [info for _, info in (*conv.reads, *conv.writes, *pool.writes)]
    if (
        conv.kernel != "conv"
        or relu is None
        or pool.define_values["MODE"] != "MAXIMUM"
        or {info.dtype for info in tensors} != {result.dtype}
        or result.dtype not in FLOATS
        or after["in_size"] != (1, push["out_h"], push["out_w"])
        or after["kernel"][0] != 1
        or set(after["dilation"]) != {1}
        or conv.prologue
    ):
        return None
    places = math.prod(after["kernel"])
    terms = push["in_channels"] * push["kernel_h"] * push["kernel_w"]
    if places > MOST_PLACES or result.count * places * terms > MOST_PRODUCTS:
        return None
    shared = min(lanes, 1 << (-(-terms // TERMS) - 1).bit_length())
    reads = tuple(pair for pair in conv.reads if pair[0] in ("x_buffer", "w_buffer", "bias_buffer"))
    names = (
        "groups",
        "in_channels",
        "out_channels",
        "in_h",
        "in_w",
        "stride_h",
        "stride_w",
        "dilation_h",
        "dilation_w",
        "pad_top",
        "pad_left",
    )
    made = {
        "count": result.count,
        **{name: push[name] for name in names},
        "conv_h": push["out_h"],
        "conv_w": push["out_w"],
        "out_h": after["out_size"][1],
        "out_w": after["out_size"][2],
        "pool_stride_h": after["stride"][1],
        "pool_stride_w": after["stride"][2],
        "pool_top": after["pad"][1],
        "pool_left": after["pad"][2],
    }
    constants = {
        "LANES": shared,
        "WORKGROUP": WORKGROUP,
        "KERNEL_H": push["kernel_h"],
        "KERNEL_W": push["kernel_w"],
        "POOL_H": after["kernel"][1],
        "POOL_W": after["kernel"][2],
    }
    typed = (
        *dtypes.type_defines("T", result.dtype)[:2],
        *dtypes.type_defines("Y", result.dtype)[::2],
    )
    return Dispatch(
        "conv_pool",
        reads,
        (("y_buffer", result),),
        registry.grid(-(-result.count * shared // WORKGROUP)),
        tuple(made.items()),
        (*typed, ("BIAS", defines["BIAS"]), ("RELU", str(int(relu)))),
        tuple(constants.items()),
        flops=conv.flops + pool.flops,
        iterations=-(-terms // shared),
    )


def _relu(conv: Dispatch) -> bool | None:
    """Tell whether a ReLU follows a convolution; None if anything else does."""
    work = conv.epilogue
    if work is None:
        return False
    plain = len(work.formulas) == len(work.operands) == 1 and not work.target
    return True if plain and work.formulas[0].text == RELU else None
