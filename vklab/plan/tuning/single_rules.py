"""Table of the rules of kernels that have one rule each. Visited by lab 08."""

from __future__ import annotations

from collections.abc import Callable

from vklab import settings
from vklab.plan.tuning import elements, last_pools, matrix_attention, row_registers
from vklab.types import DeviceInfo, Dispatch

__all__ = ["RULES", "Rule", "name", "of"]

Rule = Callable[[Dispatch, DeviceInfo], tuple[Dispatch, ...]]
RULES: dict[str, Rule] = {
    **matrix_attention.RULES, **elements.RULES, **row_registers.RULES,
    **last_pools.RULES,
}  # fmt: skip


def of(kernel: str) -> Rule | None:
    """Return the rule of a kernel; None if it has none, or DISABLE_PASSES names it."""
    rule = RULES.get(kernel)
    return rule if rule and name(rule) not in settings.names("DISABLE_PASSES") else None


def name(rule: Rule) -> str:
    """Return the name by which DISABLE_PASSES leaves a rule out: that of its module."""
    return rule.__module__.rpartition(".")[2]
