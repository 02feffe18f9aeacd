"""Ablations: one model with each optimisation switched off, all of them measured in turn.

Each switch is an environment variable of a child of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab import settings
from vklab.apps.compare.speed.runners.on_vulkan import Vulkan
from vklab.base import catalogue
from vklab.types import DeviceInfo

BASE = "vklab"
PREFIX = "DISABLE_"
# They change where compiled kernels are kept, or what is planned for several devices: no run here.
_ELSEWHERE = {"DISABLE_CACHE", "DISABLE_MEASURED", "DISABLE_SHARED_MEMORY", "DISABLE_DMA_BUF",
              "DISABLE_OVERLAP", "DISABLE_DEVICE_ORDER", "DISABLE_EARLY_MOVES",
              "DISABLE_STAGING_RING"}  # fmt: skip


def switches() -> tuple[str, ...]:
    """Return the switches that leave out an optimisation of a run on one device."""
    return tuple(
        name for name in settings.SETTINGS if name.startswith(PREFIX) and name not in _ELSEWHERE
    )


def runners(info: DeviceInfo, dtype: str = "float32") -> Sequence[Vulkan]:
    """Return vklab as it is, without each optimisation, and without each group of rules.

    Args:
        info: the device.
        dtype: "float32" or "float16".
    """
    asked = {
        f"without {name.removeprefix(PREFIX).lower()}": (
            name,
            "all" if name == "DISABLE_PASSES" else "1",
        )
        for name in switches()
    }
    for label, names in catalogue.groups(info.is_cpu).items():
        asked[f"without {label}"] = "DISABLE_PASSES", names
    return [
        Vulkan(BASE, dtype, info.index),
        *(
            Vulkan(label, dtype, info.index, {f"VKLAB_{name}": value})
            for label, (name, value) in asked.items()
        ),
    ]
