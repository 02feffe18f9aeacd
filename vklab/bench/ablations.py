"""Ablations: one model with each optimisation switched off, all of them measured in turn.

Each switch is an environment variable of a child of its own. Visited by lab 18.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab import settings
from vklab.bench.runners.on_vulkan import Vulkan

__all__ = ["BASE", "runners", "switches"]

BASE = "vklab"
PREFIX = "DISABLE_"
# They change where compiled kernels are kept, or what is planned for several devices: no run here.
_ELSEWHERE = {"DISABLE_CACHE", "DISABLE_MEASURED", "DISABLE_SHARED_MEMORY", "DISABLE_DMA_BUF",
              "DISABLE_OVERLAP", "DISABLE_DEVICE_ORDER", "DISABLE_EARLY_MOVES",
              "DISABLE_STAGING_RING"}  # fmt: skip


def switches() -> tuple[str, ...]:
    """Return the switches that leave out an optimisation of a run on one device."""
    return tuple(name for name in settings.SETTINGS
                 if name.startswith(PREFIX) and name not in _ELSEWHERE)  # fmt: skip


def runners(device: int | str | None, dtype: str = "float32") -> Sequence[Vulkan]:
    """Return vklab as it is, and without each optimisation.

    Args:
        device: index or part of a name.
        dtype: "float32" or "float16".
    """
    made = [Vulkan(BASE, dtype, device)]
    for name in switches():
        value = "all" if name == "DISABLE_PASSES" else "1"
        made.append(Vulkan(f"without {name.removeprefix(PREFIX).lower()}", dtype, device,
                           {f"VKLAB_{name}": value}))  # fmt: skip
    return made
