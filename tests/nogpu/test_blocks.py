"""GGUF's block formats on the host: bit for bit what gguf and ggml's reference quantiser give."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from support.graphs.block_cases import K_FORMATS, extreme_blocks, random_blocks
from support.runs.tiers import is_long
from vklab.apps.quantization import blocks
from vklab.errors import ModelError
from vklab.ops.blocks import FORMATS, words

CASES = Path(__file__).resolve().parents[2] / "data" / "block_cases.npz"
TYPES = gguf.GGMLQuantizationType
BLOCKS = 20_000 if is_long() else 400


def rows(seed: int) -> np.ndarray:
    """Return rows of 64 numbers: of many sizes, flat, one-sided, sparse and halfway."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((96, 64)).astype(np.float32)
    made[16:48] *= np.exp(rng.uniform(-30, 10, (32, 1))).astype(np.float32)
    made[48:50] = [[0], [1]]
    made[50:54] = abs(made[50:54])
    made[54:58] = -abs(made[54:58])
    made[58:62, ::5] = 0
    made[62:70] = np.round(made[62:70] * 8) / 2
    made[70:72, 3] = 70_000
    return made


@pytest.mark.parametrize("name", FORMATS)
def test_a_layout_is_ggufs(name):
    block = FORMATS[name]
    assert block.number == TYPES[name]
    assert (block.elements, block.fields.itemsize) == gguf.GGML_QUANT_SIZES[TYPES[name]]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["random", "extreme"])
def test_dequantised_values_are_ggufs_bit_for_bit(name, kind):
    data = random_blocks(name, BLOCKS) if kind == "random" else extreme_blocks(name)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, TYPES[name])
    found = blocks.dequantize(name, data)
    assert found.shape == expected.shape and found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()
    if kind == "extreme":
        assert not np.isfinite(found).all()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("seed", range(20 if is_long() else 1))
def test_quantised_blocks_are_ggufs_byte_for_byte(name, seed):
    given = rows(seed)
    with np.errstate(all="ignore"):
        expected = gguf.quantize(given, TYPES[name])
    assert blocks.quantize(name, given).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", K_FORMATS)
def test_quantised_k_blocks_are_those_of_ggmls_reference(name):
    with np.load(CASES) as cases:
        found = blocks.quantize(name, cases["values"])
        different = (found != cases[name]).any(axis=1)
    assert not different.any(), f"rows {np.flatnonzero(different)}"


@pytest.mark.parametrize("name", FORMATS)
def test_values_that_a_format_can_hold_survive(name):
    step = 0.5 if name in ("Q4_0", "Q4_1", "Q4_K") else 0.25
    given = (np.arange(512, dtype=np.float32) % 16 - 8).reshape(2, 256) * np.float32(step)
    found = blocks.dequantize(name, blocks.quantize(name, given))
    exact = {"F32", "F16", "BF16", "Q4_0", "Q5_0"}  # a peak of 8 steps below 0 is a scale's own
    assert abs(found - given).max() <= (0 if name in exact else 0.06 * step * 8)


def test_sixteen_bit_floats_keep_infinities_and_nan():
    given = np.array([[np.inf, -np.inf, np.nan, 3.4e38]], np.float32)
    for name in ("F32", "F16", "BF16"):
        with np.errstate(over="ignore"):
            found = blocks.dequantize(name, blocks.quantize(name, given))
        assert np.isinf(found[0, :2]).all() and np.isnan(found[0, 2]), name


@pytest.mark.parametrize(("name", "shape", "message"), [
    ("Q4_K", (2, 128), "a row of 128 elements cannot be stored as Q4_K: its blocks have 256"),
    ("Q6_K", (257,), "257 elements cannot be stored as Q6_K"),
    ("Q8_0", (4, 33), "33 elements cannot be stored as Q8_0: its blocks have 32"),
    ("IQ2_XS", (256,), "unknown block format 'IQ2_XS'; choose one of F32, F16, BF16, Q8_0"),
    ("Q4_0", (), "a scalar has no rows"),
])  # fmt: skip
def test_rows_that_do_not_fit_are_refused_by_name(name, shape, message):
    with pytest.raises(ModelError, match=message):
        blocks.quantize(name, np.zeros(shape, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(ModelError, match="Q4_K stores finite values"):
        blocks.quantize("Q4_K", np.full(256, value, np.float32))


@pytest.mark.parametrize("data", [np.zeros(35, np.uint8), np.zeros(34, np.int8), np.uint8(0)])
def test_bytes_that_are_no_blocks_are_refused(data):
    with pytest.raises(ModelError, match="not made of rows of 34 bytes"):
        blocks.dequantize("Q8_0", np.asarray(data))


def test_words_are_a_view_unless_bytes_are_missing():
    data = np.arange(8, dtype=np.uint8)
    assert np.shares_memory(words(data), data)
    assert words(data[:6]).tolist() == [0x03020100, 0x0504]
