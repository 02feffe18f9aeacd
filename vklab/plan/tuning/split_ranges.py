"""Find plans with tensors beyond maxStorageBufferRange; `range_cutter` cuts their dispatches.

Visited by lab 08.
"""

from __future__ import annotations

from vklab.base import optional
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo

__all__ = ["apply"]

# Largest factor by which elements grow if a device stores them in a wider type.
WIDENED = 4
_cut = optional.function(f"{__package__}.range_cutter", "cut")


def apply(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return equivalent dispatches whose operands fit into the device's range, if possible."""
    fitting = info.limit("maxStorageBufferRange") // WIDENED
    operands = (each for step in lowered.dispatches for _, each in step.reads + step.writes)
    is_large = any(each.size_bytes > fitting for each in operands)
    made: Lowered = _cut(lowered, info) if is_large else lowered
    return made
