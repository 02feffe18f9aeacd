"""Cast, CastLike and BitCast bit by bit: every pair of dtypes, every code, ties and NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

import vklab
from support.graphs.small_models import one_node
from vklab.ops.dtypes import ELEMENTS

CODED = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
         "float6_e2m3fn", "float6_e3m2fn"]  # fmt: skip
NEWEST = onnx.defs.onnx_opset_version()


def number_of(dtype: str) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def run(device: int, op_type: str, *arrays: np.ndarray, **attributes) -> np.ndarray:
    proto, fed = one_node(op_type, arrays, opset=NEWEST, **attributes)
    with vklab.load(proto, device) as session:
        y = session.run(fed)["y0"]
        # A device without 64-bit types leaves these to the host.
        assert all("lacks shader" in reason for reason in session.host_reasons.values())
    return y


def cast(device: int, x: np.ndarray, to: str, **attributes) -> np.ndarray:
    return run(device, "Cast", x, to=number_of(to), **attributes)


def assert_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Compare codes, but let one NaN be as good as another."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    kind = f"uint{8 * got.itemsize}"
    np.testing.assert_array_equal(got.view(kind)[~nan], expected.view(kind)[~nan])


def all_codes(dtype: str) -> np.ndarray:
    bits = ml_dtypes.finfo(dtype).bits
    return np.arange(2**bits, dtype=np.uint8).view(dtype)


@pytest.mark.parametrize("dtype", CODED)
def test_every_code_is_read_and_written(device, dtype):
    codes = all_codes(dtype)
    values = codes.astype(np.float32)
    assert_bits(cast(device, codes, "float32"), values)
    assert_bits(cast(device, values, dtype, saturate=0), values.astype(dtype))


@pytest.mark.parametrize("dtype", CODED)
def test_what_lies_between_codes_is_rounded_to_even(device, dtype):
    finite = np.sort(all_codes(dtype).astype(np.float32))
    finite = finite[np.isfinite(finite)]
    halves = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate(
        [
            halves,
            np.nextafter(halves, np.inf),
            np.nextafter(halves, -np.inf),
            finite * 1.01,
            finite * 0.99,
        ]
    )
    near = near.astype(np.float32)
    with np.errstate(all="ignore"):
        assert_bits(cast(device, near, dtype, saturate=0), near.astype(dtype))


@pytest.mark.parametrize("dtype", CODED[:4])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "float64"])
def test_the_ends_saturate_or_overflow(device, source, dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    x = np.array([largest, -largest, 60000, -60000, np.inf, -np.inf, np.nan, 0, -0.0, 0.3])
    x = x.astype(source)
    with np.errstate(all="ignore"):
        clipped = np.clip(x.astype(np.float32), -largest, largest).astype(dtype)
        assert_bits(cast(device, x, dtype), clipped)
        assert_bits(cast(device, x, dtype, saturate=0), x.astype(np.float32).astype(dtype))


# One of each kind by default; each source compiles a kernel for every target.
KINDS = {"bool", "float16", "int64", "float8_e4m3fn", "uint4"}


@pytest.mark.full
@pytest.mark.parametrize(
    "source",
    [
        name if name in KINDS else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(set(ELEMENTS) - {"float8_e8m0fnu"})
    ],
)
def test_every_pair_of_dtypes_keeps_small_numbers(device_index, source):
    x = np.array([0, 1, 1, 0, 1]).astype(source)
    for target in sorted(set(ELEMENTS) - {source, "float8_e8m0fnu"}):
        assert_bits(cast(device_index, x, target), x.astype(np.float32).astype(target))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_are_narrowed_to_even(device, dtype):
    bits = np.random.default_rng(5).integers(0, 2**32, 4099, dtype=np.uint32)
    ties = np.arange(0, 2**16, 7, dtype=np.uint16).view(dtype).astype(np.float32)
    ties = (ties.view(np.uint32) | (0x1000 if dtype == "float16" else 0x8000)).view(np.float32)
    x = np.concatenate([bits.view(np.float32), ties])
    x = x[~((np.abs(x) < 1.2e-38) & (x != 0))]  # a device may take these for zero
    with np.errstate(all="ignore"):
        assert_bits(cast(device, x, dtype), x.astype(dtype))


def test_integers_drop_their_high_bits(device):
    x = np.array([200, 300, -1, -129, 65535, 2**31, -(2**33) + 5], np.int64)
    for target in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"):
        np.testing.assert_array_equal(cast(device, x, target), x.astype(target))
    for target, bits in (("int4", 4), ("uint4", 4), ("int2", 2), ("uint2", 2)):
        codes = (x & (2**bits - 1)).astype(np.uint8).view(target)
        np.testing.assert_array_equal(
            cast(device, x, target).astype(np.int32), codes.astype(np.int32)
        )


def test_truth_is_what_is_not_zero(device):
    x = np.array([0, -0.0, 0.5, -2, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(cast(device, x, "bool"), [False, False, True, True, True, True])
    truth = np.array([True, False])
    for target in ("float32", "int8", "uint64", "float16"):
        np.testing.assert_array_equal(cast(device, truth, target), truth.astype(target))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two_alone(device, mode, saturate):
    x = np.array(
        [1, 1.4, 1.5, 1.6, 2, 3, 5e30, 3.4e38, 2.0**-126, 1e-37, np.inf, np.nan, 0], np.float32
    )
    expected = onnx.numpy_helper.to_float8e8m0(x, bool(saturate), mode)
    got = cast(device, x, "float8_e8m0fnu", saturate=saturate, round_mode=mode)
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))
    powers = np.arange(1, 256, dtype=np.uint8).view("float8_e8m0fnu")
    np.testing.assert_array_equal(cast(device, powers, "float32"), powers.astype(np.float32))


@pytest.mark.parametrize(("source", "target"), [
    ("float32", "int32"), ("int64", "float64"), ("float16", "int16"), ("uint16", "float16"),
    ("bfloat16", "uint16"), ("int16", "bfloat16"), ("int8", "uint8"), ("uint8", "int8"),
    ("float8_e5m2", "int8"), ("uint8", "float8_e4m3fn"), ("int8", "float8_e4m3fnuz"),
])  # fmt: skip
def test_bits_are_taken_as_they_are(device, source, target):
    x = np.array([0, 1, 3, -2, 5]).astype(source)
    if source.startswith("uint"):
        x[3] = 200
    got = run(device, "BitCast", x, to=number_of(target))
    assert got.dtype == np.dtype(target) and got.tobytes() == x.tobytes()


def test_cast_like_takes_the_dtype_of_another(device):
    x = np.array([[1.5, -2.5]], np.float32)
    y = run(device, "CastLike", x, np.zeros(3, np.int16))
    np.testing.assert_array_equal(y, np.array([[1, -2]], np.int16))
