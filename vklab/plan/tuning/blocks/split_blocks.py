"""Store heads of blocks apart from their codes, so that a GPU reads sixteen bytes of codes at once.

Blocks of most formats begin at even bytes only. The parts are views of the weights: the host holds
no second copy, and uploads them in pieces. DISABLE_PREPACK keeps whole blocks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from vklab import settings
from vklab.base.names import internal
from vklab.ops.blocks import FORMATS
from vklab.plan import storage
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Pairs of bytes of a block's head, which comes first but in Q6_K. Others begin at 16 bytes.
HEADS = {"Q8_0": 1, "Q4_0": 1, "Q4_1": 2, "Q5_0": 3, "Q5_1": 4, "Q6_K": 9}
KERNELS = frozenset({"matvec_units", "unpack_units"})
WEIGHTS = frozenset({"b_buffer", "g_buffer", "b1_buffer", "b2_buffer"})


@dataclass(frozen=True)
class Part:
    """Codes or heads of a weight in blocks of a format, as [blocks, pairs of bytes]."""

    weight: str
    part: str
    format: str
    blocks: int

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values of this part, a view of the weight."""
        size = _pairs(self.format)
        blocks = values.view(np.uint16)[: self.blocks * size].reshape(-1, size)
        return blocks[:, _columns(self.format, self.part)]


def apply(dispatch: Dispatch, info: DeviceInfo, resident: Collection[str] = ()) -> Dispatch:
    """Return a dispatch that reads codes and heads from buffers of their own, where that pays.

    Args:
        dispatch: a dispatch of any kernel; others than KERNELS are returned unchanged.
        info: the device.
        resident: names of weights on the device; whole blocks that are there are read as they are.
    """
    if dispatch.kernel not in KERNELS or settings.get("DISABLE_PREPACK"):
        return dispatch
    name = dispatch.define_values["FORMAT"]
    weights = [(key, read) for key, read in dispatch.reads if key in WEIGHTS]
    known = all(read.constant is not None and read.name not in resident for _, read in weights)
    if name not in HEADS or not known or storage.stored_dtype("uint16", info) != "uint16":
        return dispatch
    parts = {key: _parts(read, name) for key, read in weights}
    reads = [(key, parts[key][0] if key in parts else read) for key, read in dispatch.reads]
    reads += [(key.replace("_", "_heads_"), heads) for key, (_, heads) in parts.items()]
    defines = ((key, "1" if key == "SPLIT" else value) for key, value in dispatch.defines)
    return replace(dispatch, reads=tuple(reads), defines=tuple(defines))


def _columns(name: str, part: str) -> slice:
    """Return the pairs of bytes of a block that belong to its codes, or to its head."""
    size, head = _pairs(name), HEADS[name]
    if name == "Q6_K":
        return slice(0, size - head) if part == "codes" else slice(size - head, size)
    return slice(head, size) if part == "codes" else slice(0, head)


def _parts(weight: TensorInfo, name: str) -> tuple[TensorInfo, TensorInfo]:
    """Return codes and heads of a weight, [blocks, pairs of bytes], without values."""
    size, head = _pairs(name), HEADS[name]
    blocks = weight.size_bytes // (2 * size)  # the last word may end with bytes of no block
    codes, heads = (
        TensorInfo(
            internal(weight.name, f"block {part} of {name}"),
            "uint16",
            (blocks, width),
            layout=Part(weight.name, part, name, blocks),
        )
        for part, width in (("codes", size - head), ("heads", head))
    )
    return codes, heads


def _pairs(name: str) -> int:
    """Return the pairs of bytes of a block: arrays of them are copied faster than bytes."""
    return FORMATS[name].fields.itemsize // 2
