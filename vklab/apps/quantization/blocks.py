"""Convert arrays to and from GGUF's block formats, on the host and bit by bit as ggml does.

`ops.blocks` has the layouts as data; `k_blocks` chooses the scales of Q4_K, Q5_K and Q6_K.
Source: ggml, ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vklab.apps.quantization import k_blocks
from vklab.apps.quantization.k_blocks import group_scales, nibbles, pack_nibbles
from vklab.errors import ModelError
from vklab.ops import blocks

PART = 1 << 18  # numbers that are quantised at once: the arrays in between are many times as large


def dequantize(block_type: str, data: np.ndarray) -> np.ndarray:
    """Return the values of rows of blocks as float32.

    Args:
        block_type: the name of a format in `ops.blocks.FORMATS`.
        data: rows of bytes, uint8 [..., bytes of a row].

    Raises ModelError for an unknown format, and for rows that end inside a block.
    """
    block = blocks.block_format(block_type)
    size = block.fields.itemsize
    if data.dtype != np.uint8 or not data.ndim or data.shape[-1] % size:
        raise ModelError(
            f"{data.dtype}{list(data.shape)} is not made of rows of {size} bytes, as "
            f"a block of {block_type} has"
        )
    shape = (*data.shape[:-1], data.shape[-1] // size * block.elements)
    fields = np.ascontiguousarray(data).reshape(-1).view(block.fields)
    with np.errstate(invalid="ignore", over="ignore"):  # scales may be infinite
        return _READERS[block_type](fields).reshape(shape)


def quantize(block_type: str, values: np.ndarray) -> np.ndarray:
    """Return finite values as rows of blocks, uint8 [..., bytes of a row].

    Args:
        block_type: the name of a format in `ops.blocks.FORMATS`.
        values: the values; their last axis must be a multiple of the format's block.

    Raises ModelError for an unknown format, a row that is no whole number of blocks, and for
    values that are not finite.
    """
    block = blocks.block_format(block_type)
    if not values.ndim:
        raise ModelError("a scalar has no rows to quantise")
    shape = (*values.shape[:-1], block.row_bytes(values.shape[-1]))
    exact = np.ascontiguousarray(values, np.float32)
    if block.elements > 1 and not np.isfinite(exact).all():
        raise ModelError(f"{block_type} stores finite values; the array has NaN or infinities")
    rows = exact.reshape(-1, block.elements)
    made = np.empty(len(rows), block.fields)
    step = max(1, PART // block.elements)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for start in range(0, len(rows), step):
            fields = _WRITERS[block_type](rows[start : start + step])
            made[start : start + step] = fields.view(block.fields).reshape(-1)
    return made.view(np.uint8).reshape(shape)


def _column(field: np.ndarray) -> np.ndarray:
    """Return a field of one number a block as float32 [blocks, 1]."""
    return field.astype(np.float32)[:, None]


def _read_bfloat16(block: np.ndarray) -> np.ndarray:
    return (block["x"].astype(np.uint32) << 16).view(np.float32)


def _codes(block: np.ndarray) -> np.ndarray:
    """Return the codes of blocks of 32 elements: nibbles, and a fifth bit where there is one."""
    codes = nibbles(block["qs"], 16)
    if "qh" in (block.dtype.names or ()):
        codes |= np.unpackbits(block["qh"], axis=-1, bitorder="little") << 4
    return codes.astype(np.int16)


def _read_centred(block: np.ndarray) -> np.ndarray:
    middle = 16 if "qh" in (block.dtype.names or ()) else 8
    return _column(block["d"]) * (_codes(block) - middle).astype(np.float32)


def _read_offset(block: np.ndarray) -> np.ndarray:
    return _column(block["d"]) * _codes(block).astype(np.float32) + _column(block["m"])


def _read_groups(block: np.ndarray) -> np.ndarray:
    codes = nibbles(block["qs"].reshape(-1, 4, 32), 32).reshape(-1, 8, 32)
    if "qh" in (block.dtype.names or ()):
        shifts = np.arange(8, dtype=np.uint8)[:, None]
        codes |= (block["qh"][:, None] >> shifts & 1) << 4
    scales, least = group_scales(block["scales"])
    factor = (_column(block["d"]) * scales.astype(np.float32))[..., None]
    offset = (_column(block["dmin"]) * least.astype(np.float32))[..., None]
    return factor * codes.astype(np.float32) - offset


def _read_q6_k(block: np.ndarray) -> np.ndarray:
    low = nibbles(block["ql"].reshape(-1, 2, 64), 64).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = block["qh"].reshape(-1, 2, 1, 32) >> shifts & 3
    codes = (low | high << 4).astype(np.int8) - 32
    factor = _column(block["d"]) * block["scales"].astype(np.float32)
    return factor[..., None] * codes.reshape(-1, 16, 16).astype(np.float32)


_READERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": lambda block: block["x"].astype(np.float32),
    "F16": lambda block: block["x"].astype(np.float32),
    "BF16": _read_bfloat16,
    "Q8_0": lambda block: block["qs"].astype(np.float32) * _column(block["d"]),
    "Q4_0": _read_centred,
    "Q4_1": _read_offset,
    "Q5_0": _read_centred,
    "Q5_1": _read_offset,
    "Q4_K": _read_groups,
    "Q5_K": _read_groups,
    "Q6_K": _read_q6_k,
}


def _write_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    bits = np.where(is_nan, bits & 0xFFFF0000 | 0x400000, bits).astype(np.uint64)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def _inverse(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == 0, np.float32(0), 1 / scale)


def _write_q8_0(values: np.ndarray) -> np.ndarray:
    block = np.zeros(len(values), blocks.FORMATS["Q8_0"].fields)
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    exact = values * _inverse(scale)
    whole = np.floor(np.abs(exact))
    rounded = whole + np.floor(2 * (np.abs(exact) - whole))  # halves away from zero
    block["d"], block["qs"] = scale[:, 0], np.sign(exact) * rounded
    return block


def _write_codes(block_type: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that writes blocks of 32 elements of 4 or 5 bits."""
    fields = blocks.FORMATS[block_type].fields
    names = fields.names or ()
    levels = 32 if "qh" in names else 16

    def write(values: np.ndarray) -> np.ndarray:
        block = np.zeros(len(values), fields)
        if "m" in names:
            least = values.min(axis=1, keepdims=True)
            scale = (values.max(axis=1, keepdims=True) - least) / np.float32(levels - 1)
            exact = (values - least) * _inverse(scale) + np.float32(0.5)
            block["m"] = least[:, 0]
        else:  # the value of the largest magnitude gets the lowest code
            peak = np.abs(values).argmax(axis=1, keepdims=True)
            scale = np.take_along_axis(values, peak, axis=1) / np.float32(-levels // 2)
            exact = values * _inverse(scale) + np.float32(levels / 2 + 0.5)
        codes = np.trunc(exact).astype(np.uint8).clip(0, levels - 1)
        block["d"], block["qs"] = scale[:, 0], pack_nibbles(codes & 15, 16)
        if "qh" in names:
            block["qh"] = np.packbits(codes >> 4, axis=-1, bitorder="little")
        return block

    return write


_WRITERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": lambda values: values,
    "F16": lambda values: values.astype(np.float16),
    "BF16": _write_bfloat16,
    "Q8_0": _write_q8_0,
    **{name: _write_codes(name) for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1")},
    **k_blocks.WRITERS,
}
