"""use_native_halves: let fused chains of half precision compute in the device's own halves.

A step is then one instruction, as in float32; rounding by bits takes a dozen. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.plan.fusion.flow import Flow
from vklab.plan.fusion.text import rounding


def use_native_halves(flow: Flow) -> None:
    """Mark the dispatches whose texts compute in halves, where the device rounds exactly.

    Source: Vulkan specification, VkPhysicalDeviceFloatControlsProperties
    """
    if not rounding.has_halves(flow.info):
        return
    for number, dispatch in flow.alive():
        if any(
            rounding.is_native(work, formula)
            for work in rounding.works(dispatch)
            for formula in work.formulas
        ):
            defines = (*dispatch.defines, rounding.DEFINE)
            flow.dispatches[number] = replace(dispatch, defines=defines)
