"""Table of the rules of kernels that have one rule each; files are loaded when kernels need them.

Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Callable

from vklab import settings
from vklab.base import optional
from vklab.types import DeviceInfo, Dispatch

__all__ = ["RULES", "Rule", "name", "of"]

Rule = Callable[[Dispatch, DeviceInfo], tuple[Dispatch, ...]]


def _of_every_device(module: str) -> Rule:
    return optional.function(f"{__package__}.{module}", "choose")


def _of_gpus(module: str, function: str = "choose") -> Rule:
    """Return a rule that leaves the dispatches of CPU devices as they are."""
    call = optional.function(f"{__package__}.{module}", function)

    def rule(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
        made: tuple[Dispatch, ...] = (dispatch,) if info.is_cpu else call(dispatch, info)
        return made

    rule.__name__, rule.__module__ = function, call.__module__
    return rule


RULES: dict[str, Rule] = {
    **dict.fromkeys(("attention", "cache_attention", "cache_combine", "sample_draw"),
                    _of_every_device("matrix_attention")),
    **dict.fromkeys(("elementwise", "pointwise"), _of_gpus("elements")),
    **dict.fromkeys(("arg_reduce", "reduce"), _of_gpus("row_registers", "load_ahead")),
    "normalize": _of_gpus("row_registers"),
    "pool": _of_gpus("last_pools"),
    "softmax": _of_gpus("row_registers", "softmax"),
}  # fmt: skip


def of(kernel: str) -> Rule | None:
    """Return the rule of a kernel; None if it has none, or DISABLE_PASSES names it."""
    rule = RULES.get(kernel)
    return rule if rule and name(rule) not in settings.names("DISABLE_PASSES") else None


def name(rule: Rule) -> str:
    """Return the name by which DISABLE_PASSES leaves a rule out: that of its module."""
    return rule.__module__.rpartition(".")[2]
