"""Choose workgroups that keep a row in registers, for norms and Softmax on GPUs.

Each element is then read from memory once, and subgroups sum. Visited by lab 19.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.plan.tuning import tiles
from vklab.types import DeviceInfo, Dispatch

__all__ = ["RULES", "choose"]

KERNELS = ("normalize", "softmax")
# Subgroups' elements: those of an invocation, and of a workgroup over those of a subgroup. With few
# rows, more invocations share one.
FEW = ((4, 1), (4, 2), (4, 4), (4, 6), (4, 8), (4, 12), (4, 16), (4, 32), (8, 32), (16, 32))
MANY = ((4, 1), (8, 1), (8, 2), (8, 4), (8, 6), (8, 8), (8, 16), (8, 32), (16, 32))
MANY_ROWS = 16 * tiles.UNITS


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the dispatch with rows in registers, if rows are wide enough and not too long.

    Source: NVIDIA Apex, "fused layer norm"; CUDA's warp-level reductions.
    """
    push, defines = dict[str, Any](dispatch.push), dict(dispatch.defines)
    lanes, most = info.subgroup_size, info.limit("maxComputeWorkGroupInvocations")
    if info.is_cpu or defines.get("WIDE") == "0" or "arithmetic" not in info.subgroup_operations:
        return (dispatch,)
    shapes = MANY if push["rows"] >= MANY_ROWS else FEW
    for each, count in shapes:
        if push["columns"] <= each * count * lanes and count * lanes <= most:
            constants = {"WORKGROUP": count * lanes, "EACH": each, "SUBGROUP": lanes}
            return (replace(dispatch, constants=tuple(constants.items()), iterations=2 * each,
                            defines=(*dispatch.defines, ("KEPT", "1"))),)  # fmt: skip
    return (dispatch,)


RULES = dict.fromkeys(KERNELS, choose)
