"""Share the loads of A among the rows of weights in blocks, on a CPU device.

There a load of a lane is an instruction of its own; a value of another lane costs next to nothing,
and shared memory gains nothing.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.ops import linear, registry
from vklab.ops.blocks import FORMATS
from vklab.types import DeviceInfo, Dispatch

KERNELS = ("matvec_blocks", "matmul_blocks")
# The lanes that share one load; the rows of weights of a workgroup, few, so that all cores have
# some; and the rows of A for which weights are dequantised once.
SHARING, ROWS, MOST_ROWS = 8, 32, 8
# Weights that are loaded in pairs of words, and those of them that are floats.
PAIRED, FLOATS = ("F16", "BF16", "F32", "Q8_0", "Q4_1"), ("F16", "BF16", "F32")


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return a product with blocks in which each invocation has a row of weights of its own.

    Measured on llvmpipe, one row of A: 2.8 times the speed with Q4_K, 4.3 times with Q4_1; 64 rows:
    4 times with Q4_1. By loads of 64 bits, one row of A: 2.3 times with floats, 1.5 times with
    Q8_0, 1.3 times with Q4_1.
    """
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    shares = smallest >= SHARING and "shuffle" in info.subgroup_operations
    push, defines = dispatch.push_values, dispatch.define_values
    m, n, k = push["m"], push["n"], push["k"]
    blocks = -(-m // MOST_ROWS)
    is_known = dispatch.kernel in KERNELS and defines["TAIL"] == "0"
    if not info.is_cpu or not shares or not is_known or blocks > linear.MOST_GROUPS:
        return dispatch
    constants = (("LANES", 1), ("ROWS", min(m, MOST_ROWS)), ("WORKGROUP", ROWS))
    name = defines["DEQUANTIZE"].removeprefix("dequantize_")
    is_whole = n * FORMATS[name].row_bytes(k) % 8 == 0  # else the last 64 bits are beyond the end
    if name in PAIRED and is_whole and "shaderInt64" in info.features:
        kept = tuple((key, defines[key]) for key in ("T", "T_LOAD", "Y", "Y_STORE"))
        return replace(
            dispatch,
            kernel="matvec_pairs",
            constants=constants[1:],
            defines=(*kept, ("FLOATS", str(int(name in FLOATS))), ("FORMAT", name)),
            workgroups=(*registry.grid(-(-n // ROWS))[:2], blocks),
            iterations=k // 8 + MOST_ROWS,
        )
    return replace(
        dispatch,
        kernel="matvec_blocks",
        constants=constants,
        defines=tuple((defines | {"SHARED": "1"}).items()),
        workgroups=(*registry.grid(-(-n // ROWS))[:2], blocks),
        iterations=k // 32 + MOST_ROWS,
    )
