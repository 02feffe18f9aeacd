"""Blocks of GGUF's formats for tests: random ones, and ones with extreme scales and codes."""

from __future__ import annotations

import numpy as np

from vklab.ops.blocks import FORMATS

# Zeros, subnormals, the largest finite numbers, infinities and NaN as halves, of both signs.
HALVES = np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0x7E00], np.uint16)
EXTREME = np.concatenate([HALVES, HALVES | 0x8000]).view(np.float16)
K_FORMATS = ("Q4_K", "Q5_K", "Q6_K")


def random_blocks(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Return random bytes as blocks: every pattern of codes, and scales of every kind."""
    rng = np.random.default_rng([seed, FORMATS[name].number])
    return rng.integers(0, 256, (count, FORMATS[name].fields.itemsize), dtype=np.uint8)


def extreme_blocks(name: str) -> np.ndarray:
    """Return random blocks whose scales are, in turn, each of the extreme halves."""
    data = random_blocks(name, len(EXTREME) ** 2, seed=1)
    fields = data.reshape(-1).view(FORMATS[name].fields)
    scales = [field for field in ("d", "m", "dmin", "x") if field in (fields.dtype.names or ())]
    for field, step in zip(scales, (1, len(EXTREME)), strict=False):
        numbers = EXTREME[np.arange(len(fields)) // step % len(EXTREME)]
        as_bits = numbers.astype(np.float32).view("<u4") >> 16
        fields[field] = as_bits if name == "BF16" else numbers
    return data


def moderate_blocks(name: str, rows: int, elements: int, seed: int = 0) -> np.ndarray:
    """Return rows of random blocks as bytes, with scales for which values stay below about 10."""
    block = FORMATS[name]
    data = random_blocks(name, rows * elements // block.elements, seed)
    fields = data.reshape(-1).view(block.fields)
    rng = np.random.default_rng(seed)
    largest = {"F32": 4, "F16": 4, "BF16": 4, "Q8_0": 0.03, "Q6_K": 0.001, "Q4_K": 0.005}
    for field in {"d", "m", "dmin", "x"} & set(fields.dtype.names or ()):
        bound = largest.get(name, 0.003 if name == "Q5_K" else 0.2)
        numbers = rng.uniform(-bound, bound, len(fields)).astype(np.float32)
        fields[field] = numbers.view("<u4") >> 16 if name == "BF16" else numbers
    return data.reshape(rows, block.row_bytes(elements))
