"""Table of the rules of kernels that have one rule each. Visited by lab 08."""

from __future__ import annotations

from collections.abc import Callable

from vklab.plan.tuning import elements, last_pools, matrix_attention, row_registers
from vklab.types import DeviceInfo, Dispatch

__all__ = ["RULES"]

RULES: dict[str, Callable[[Dispatch, DeviceInfo], tuple[Dispatch, ...]]] = {
    **matrix_attention.RULES, **elements.RULES, **row_registers.RULES,
    **last_pools.RULES,
}  # fmt: skip
