"""Argument of the rules that join dispatches of different nodes. Visited by lab 08."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch


class JoinTask(NamedTuple):
    """Dispatches of a chunk on one device, and what decides which of them may be joined.

    Attributes:
        lowered: the dispatches; for a norm, those before kernels were chosen.
        info: the device.
        outputs: the values that must be in memory after the last dispatch.
        resident: names of weights that the device holds.
        refused: why a kernel cannot be had; "" if it can.
        chosen: for each dispatch those that were chosen for it; a rule changes this list in place.
    """

    lowered: Lowered
    info: DeviceInfo
    outputs: Collection[str]
    resident: Collection[str]
    refused: Callable[[Dispatch], str]
    chosen: list[tuple[Dispatch, ...]]
