"""Share the loads of A among the rows of weights in blocks, on a CPU device.

There a load of a lane is an instruction of its own; a value of another lane costs next to nothing,
and shared memory gains nothing. Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.ops import linear, registry
from vklab.types import DeviceInfo, Dispatch

__all__ = ["KERNELS", "choose"]

KERNELS = ("matvec_blocks", "matmul_blocks")
# The lanes that share one load; the rows of weights of a workgroup, few, so that all cores have
# some; and the rows of A for which weights are dequantised once.
SHARING, ROWS, MOST_ROWS = 8, 32, 8


def choose(dispatch: Dispatch, info: DeviceInfo) -> Dispatch:
    """Return a product with blocks in which each invocation has a row of weights of its own.

    Measured on llvmpipe, one row of A: 2.8 times the speed with Q4_K, 4.3 times with Q4_1; 64 rows:
    4 times with Q4_1.
    """
    smallest = info.limit("minSubgroupSize") or info.subgroup_size
    shares = smallest >= SHARING and "shuffle" in info.subgroup_operations
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    m, n, k = push["m"], push["n"], push["k"]
    blocks = -(-m // MOST_ROWS)
    is_known = dispatch.kernel in KERNELS and defines["TAIL"] == "0"
    if not info.is_cpu or not shares or not is_known or blocks > linear.MOST_GROUPS:
        return dispatch
    constants = (("LANES", 1), ("ROWS", min(m, MOST_ROWS)), ("WORKGROUP", ROWS))
    return replace(
        dispatch, kernel="matvec_blocks", constants=constants,
        defines=tuple((defines | {"SHARED": "1"}).items()),
        workgroups=(*registry.grid(-(-n // ROWS))[:2], blocks), iterations=k // 32 + MOST_ROWS,
    )  # fmt: skip
