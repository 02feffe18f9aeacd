"""Store heads of blocks apart from their codes, so that a GPU reads sixteen bytes of codes at once.

Blocks of most formats begin at even bytes only. The parts are views of the weights: the host holds
no second copy, and uploads them in pieces. DISABLE_PREPACK keeps whole blocks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from vklab import settings
from vklab.graph import constant_cache
from vklab.ops.blocks import FORMATS
from vklab.plan import storage
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["apply", "fill"]

# Pairs of bytes of a block's head, which comes first but in Q6_K. Others begin at 16 bytes.
HEADS = {"Q8_0": 1, "Q4_0": 1, "Q4_1": 2, "Q5_0": 3, "Q5_1": 4, "Q6_K": 9}
KERNELS = frozenset({"matvec_units", "unpack_units"})
WEIGHTS = frozenset({"b_buffer", "g_buffer", "b1_buffer", "b2_buffer"})
_NAME = re.compile(r"(.*):(codes|heads)(Q\w+)", re.S)


def apply(dispatch: Dispatch, info: DeviceInfo, resident: Collection[str] = ()) -> Dispatch:
    """Return a dispatch that reads codes and heads from buffers of their own, where that pays.

    Args:
        dispatch: a dispatch of any kernel; others than KERNELS are returned unchanged.
        info: the device.
        resident: names of weights on the device; whole blocks that are there are read as they are.
    """
    if dispatch.kernel not in KERNELS or settings.get("DISABLE_PREPACK"):
        return dispatch
    name = dict(dispatch.defines)["FORMAT"]
    weights = [(key, read) for key, read in dispatch.reads if key in WEIGHTS]
    known = all(read.constant is not None and read.name not in resident for _, read in weights)
    if name not in HEADS or not known or storage.stored_dtype("uint16", info) != "uint16":
        return dispatch
    parts = {key: _parts(read, name) for key, read in weights}
    reads = [(key, parts[key][0] if key in parts else read) for key, read in dispatch.reads]
    reads += [(key.replace("_", "_heads_"), heads) for key, (_, heads) in parts.items()]
    defines = ((key, "1" if key == "SPLIT" else value) for key, value in dispatch.defines)
    return replace(dispatch, reads=tuple(reads), defines=tuple(defines))


def fill(read: TensorInfo, constants: Mapping[str, TensorInfo]) -> TensorInfo | None:
    """Return codes or heads that `apply` named, with their value; None for any other tensor."""
    match = _NAME.fullmatch(read.name)
    source = constants[match[1]].constant if match and match[1] in constants else None
    if match is None or source is None or read.constant is not None:
        return None
    part, name = match[2], match[3]

    def cut(words: np.ndarray) -> np.ndarray:
        size = _pairs(name)
        blocks = words.view(np.uint16)[: read.dims[0] * size].reshape(-1, size)
        return blocks[:, _columns(name, part)]

    array = constant_cache.derive((part, name), cut, source)
    return TensorInfo(read.name, read.dtype, read.shape, array)


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
    return (TensorInfo(f"{weight.name}:codes{name}", "uint16", (blocks, size - head)),
            TensorInfo(f"{weight.name}:heads{name}", "uint16", (blocks, head)))  # fmt: skip


def _pairs(name: str) -> int:
    """Return the pairs of bytes of a block: arrays of them are copied faster than bytes."""
    return FORMATS[name].fields.itemsize // 2
