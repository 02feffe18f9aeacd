"""Ablations: one model with each optimisation switched off, all of them measured in turn.

Each switch is an environment variable of a child of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vklab import settings
from vklab.apps.compare.speed.runners.on_vulkan import Vulkan
from vklab.types import DeviceInfo

__all__ = ["BASE", "PARTS", "runners", "switches"]

BASE = "vklab"
PREFIX = "DISABLE_"
# They change where compiled kernels are kept, or what is planned for several devices: no run here.
_ELSEWHERE = {"DISABLE_CACHE", "DISABLE_MEASURED", "DISABLE_SHARED_MEMORY", "DISABLE_DMA_BUF",
              "DISABLE_OVERLAP", "DISABLE_DEVICE_ORDER", "DISABLE_EARLY_MOVES",
              "DISABLE_STAGING_RING"}  # fmt: skip
# Passes, fusions and choices of kernels that DISABLE_PASSES leaves out together, by what they do.
_EVERYWHERE = {
    "one attention": "fuse_attention,join_attention",
    "norm patterns": "fuse_layer_norm,fuse_rms_norm",
    "gelu pattern": "fuse_gelu",
    "joint products": "join_products",
    "chains": "fuse_chains",
    "epilogues": "fuse_epilogues",
    "prologues": "fuse_prologues",
    "strided reads": "read_strided",
    "siblings": "join_siblings",
    "winograd": "winograd",
}
_ON_GPUS = {
    "channels last": "channels_last",
    "halves of the device": "use_native_halves",
    "matrix units": "matrix_product,matrix_conv,matrix_last,registers,"
                    "matrix_attention,matrix_cache",
    "products in registers": "registers",
    "gated products": "gated",
    "attention of a prompt": "matrix_cache",
    "attention of few keys": "direct",
    "tiles": "tiled,tiled_last",
    "results in fours": "fours",
    "norms in products": "inner_norms",
    "shared sums": "sliced",
    "split sums": "split_sums",
    "one and few rows": "one_row,rows_at_once,few_rows",
    "products in turn": "row_chains",
    "convolutions with maxima": "fuse_conv_pools",
    "rows in registers": "row_registers",
    "wide elements": "elements",
    "depthwise with channels last": "paired_last",
    "maxima with channels last": "last_pools",
    "weights ahead": "unpack_ahead",
    "a row in shared memory": "shared_floats",
}
_ON_CPUS = {"pairs": "pairs", "depthwise": "depthwise", "shared rows": "shared_rows"}
PARTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"every device": _EVERYWHERE, "GPUs": _ON_GPUS, "CPUs": _ON_CPUS})


def switches() -> tuple[str, ...]:
    """Return the switches that leave out an optimisation of a run on one device."""
    return tuple(name for name in settings.SETTINGS
                 if name.startswith(PREFIX) and name not in _ELSEWHERE)  # fmt: skip


def runners(info: DeviceInfo, dtype: str = "float32") -> Sequence[Vulkan]:
    """Return vklab as it is, without each optimisation, and without each part of them.

    Args:
        info: the device.
        dtype: "float32" or "float16".
    """
    asked = {f"without {name.removeprefix(PREFIX).lower()}":
             (name, "all" if name == "DISABLE_PASSES" else "1") for name in switches()}  # fmt: skip
    for label, names in {**_EVERYWHERE, **(_ON_CPUS if info.is_cpu else _ON_GPUS)}.items():
        asked[f"without {label}"] = "DISABLE_PASSES", names
    return [Vulkan(BASE, dtype, info.index),
            *(Vulkan(label, dtype, info.index, {f"VKLAB_{name}": value})
              for label, (name, value) in asked.items())]  # fmt: skip
