"""Find plans with tensors beyond maxStorageBufferRange; `range_cutter` cuts their dispatches.

Visited by lab 08.
"""

from __future__ import annotations

from vklab.base import catalogue
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo

# Largest factor by which elements grow if a device stores them in a wider type.
WIDENED = 4


def apply(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return equivalent dispatches whose operands fit into the device's range, if possible."""
    fitting = info.limit("maxStorageBufferRange") // WIDENED
    operands = (each for step in lowered.dispatches for _, each in step.reads + step.writes)
    is_large = any(each.size_bytes > fitting for each in operands)
    made: Lowered = catalogue.step("cut ranges")(lowered, info) if is_large else lowered
    return made
