"""Element-wise operators beyond float32: ranges, integers, narrow floats, mixed dtypes, opsets."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node, random_array
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops import registry
from vklab.runtime import open_devices
from vklab.types import TensorInfo

WIDE = np.concatenate(
    [
        np.linspace(-9, 9, 181),
        10.0 ** np.arange(-30, 5, 0.5),
        -(10.0 ** np.arange(-30, 5, 0.5)),
        np.linspace(-1, 1, 67),
        [np.nan, np.inf, -np.inf, 88, -88, 1e38],
    ]
).astype(np.float32)
# The result of numpy in float64, and the numbers that a function is asked about.
FUNCTIONS = {
    "Acos": (np.arccos, 2), "Acosh": (np.arccosh, 1e38), "Asin": (np.arcsin, 2),
    "Asinh": (np.arcsinh, np.inf), "Atan": (np.arctan, np.inf), "Atanh": (np.arctanh, 2),
    "Cos": (np.cos, 3e5), "Cosh": (np.cosh, 89), "Exp": (np.exp, np.inf), "Log": (np.log, np.inf),
    "Sin": (np.sin, 3e5), "Sinh": (np.sinh, 89), "Sqrt": (np.sqrt, np.inf),
    "Tan": (np.tan, 3e5), "Tanh": (np.tanh, np.inf), "Reciprocal": (np.reciprocal, np.inf),
    "Round": (np.rint, np.inf), "Ceil": (np.ceil, np.inf), "Floor": (np.floor, np.inf),
    "Sign": (np.sign, np.inf), "Abs": (np.abs, np.inf),
}  # fmt: skip


def run(device: int, op_type: str, arrays: list, opset: int = 23, **attributes) -> np.ndarray:
    proto, fed = one_node(op_type, arrays, opset=opset, **attributes)
    with vklab.load(proto, device) as session:
        y = session.run(fed)["y0"]
        # A device without 64-bit types leaves these to the host.
        assert all("lacks shader" in reason for reason in session.host_reasons.values())
    return y


@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_functions_hold_six_digits_of_every_result(device, op_type):
    function, limit = FUNCTIONS[op_type]
    x = WIDE[~(np.abs(WIDE) > limit)]
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64))
        expected[np.abs(expected) > 3.4e38] *= np.inf
    rtol = 2e-5 if op_type in ("Cosh", "Sinh", "Exp") else 2e-6
    # Near a zero that is not at 0, the argument's own last bit decides; below 1e-30 may be zero.
    atol = 3e-8 if op_type in ("Sin", "Cos", "Tan") else 1e-30
    y = run(device, op_type, [x]).astype(np.float64)
    np.testing.assert_allclose(y, expected, rtol=rtol, atol=atol)


def test_erf_and_gelu_where_they_nearly_vanish(device):
    from math import erf, erfc

    x = WIDE[np.isfinite(WIDE) & (np.abs(WIDE) < 9)]
    expected = np.array([erf(v) for v in x])
    np.testing.assert_allclose(run(device, "Erf", [x]), expected, rtol=5e-7, atol=1e-30)
    expected = np.array([0.5 * v * erfc(-v / 2**0.5) for v in x.astype(np.float64)])
    np.testing.assert_allclose(run(device, "Gelu", [x]), expected, rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize("op_type", ["Softplus", "Mish", "Elu", "Selu", "Celu", "HardSigmoid",
                                     "HardSwish", "Softsign", "ThresholdedRelu"])  # fmt: skip
def test_activations(device, op_type):
    opset = 18 if op_type == "Mish" else 17
    check_operator(op_type, inputs=[WIDE[np.isfinite(WIDE)]], device=device, opset=opset)


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_never_stumble(device, dtype):
    if dtype().itemsize == 8 and "shaderInt64" not in open_devices.devices()[device].features:
        pytest.skip("the host computes 64-bit integers here, and its powers do not wrap")
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = [lowest, lowest + 1, highest, highest - 1, 0, 1, 2, 7, 100]
    if lowest < 0:
        values += [-1, -2, -7]
    a, b = np.array(values, dtype)[:, None], np.array(values, dtype)
    nonzero, small = b[b != 0], np.array([0, 1, 3, 5], dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(device, "Add", [a, b]), a + b)
        np.testing.assert_array_equal(run(device, "Mul", [a, b]), a * b)
        np.testing.assert_array_equal(run(device, "Mod", [a, nonzero]), np.mod(a, nonzero))
        np.testing.assert_array_equal(run(device, "Mod", [a, nonzero], fmod=1), np.fmod(a, nonzero))
        np.testing.assert_array_equal(run(device, "Pow", [a, small]), a**small)
        np.testing.assert_array_equal(run(device, "Max", [a, b, a]), np.maximum(a, b))
        np.testing.assert_array_equal(run(device, "Less", [a, b]), a < b)
        np.testing.assert_array_equal(run(device, "Abs", [b]), np.abs(b))
        np.testing.assert_array_equal(run(device, "Sign", [b]), np.sign(b))
        np.testing.assert_array_equal(run(device, "BitwiseNot", [b]), ~b)
    quotient = run(device, "Div", [a, b])
    for (i, j), got in np.ndenumerate(quotient):
        x, y = int(a[i, 0]), int(b[j])
        exact = 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert got == np.array(exact & (2 ** (8 * b.itemsize) - 1), f"u{b.itemsize}").view(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fmod", [0, 1])
def test_what_division_leaves_is_exact(device, dtype, fmod):
    a = np.array([7, -7, 0.3, -0.3, 1e4, -1e4, 0, -0.0, np.inf, np.nan, 60000], dtype)[:, None]
    b = np.array([3, -3, 0.1, 1e-3, -7e-2, np.inf, -np.inf, 0, np.nan], dtype)
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b) if fmod else np.mod(a, b)
    np.testing.assert_allclose(run(device, "Mod", [a, b], fmod=fmod), expected, rtol=1e-3)


def test_powers(device):
    a = np.array([-3, -2, -1.5, -1, -0.0, 0, 0.5, 1, 2, 10, np.inf, -np.inf, np.nan], np.float32)
    b = np.array([-3, -2, -0.5, 0, 0.5, 1, 2, 3, 2.5, 31, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(a[:, None], b)
    np.testing.assert_allclose(run(device, "Pow", [a[:, None], b]), expected, rtol=1e-5)
    squares = np.arange(100, dtype=np.int64)
    np.testing.assert_array_equal(run(device, "Pow", [squares**2, np.float32(0.5)]), squares)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_once(device, dtype):
    kind = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, dtype.upper()))
    a, b = (random_array((257,), seed).astype(kind) for seed in (0, 1))
    for op_type, function in (("Add", np.add), ("Mul", np.multiply), ("Max", np.maximum)):
        expected = function(a.astype(np.float32), b.astype(np.float32)).astype(kind)
        assert run(device, op_type, [a, b]).tobytes() == expected.tobytes()


def test_eight_axes_that_do_not_merge_twice(device):
    x = random_array((2, 1, 3, 1, 2, 1, 2, 3))
    bias = random_array((1, 2, 1, 3, 1, 2, 1, 3), 1)
    y = run(device, "Where", [x > 0, x, bias])
    np.testing.assert_array_equal(y, np.where(x > 0, x, bias))
    check_operator("Sum", inputs=[x, bias, x, bias], device=device)


def test_nan_wins_in_maximum_minimum_and_clip(device):
    x = np.array([np.nan, 1, -np.inf, np.inf], np.float32)
    for op_type in ("Max", "Min"):
        y = run(device, op_type, [x[:, None], x])
        assert np.isnan(y[0]).all() and np.isnan(y[:, 0]).all() and np.isnan(y).sum() == 7
    y = run(device, "Clip", [x, np.float32(-2), np.float32(2)])
    np.testing.assert_array_equal(y, [np.nan, 1, -2, 2])


def test_clip_in_all_its_opsets(device):
    x = random_array((7, 5))
    check_operator("Clip", inputs=[x], device=device, opset=10, min=-0.5, max=0.5)
    check_operator("Clip", inputs=[x, None, np.array(0.2, np.float32)], device=device)
    check_operator("Clip", inputs=[x, np.array(0.2, np.float32)], device=device, constants=[1])
    check_operator("Clip", inputs=[x], device=device)


def test_nothing_in_nothing_out(device):
    for op_type in ("Erf", "Sign", "Softplus"):
        assert run(device, op_type, [np.zeros((0, 3), np.float32)]).shape == (0, 3)
    assert run(device, "Where", [np.zeros((0, 1), bool), *[np.ones((1, 3), np.int8)] * 2]).size == 0


def test_what_is_wrong_is_said(device_index):
    x = random_array((2, 3))
    with pytest.raises(ModelError, match="does not broadcast to"):
        run(device_index, "PRelu", [x, random_array((4, 2, 3))])
    with pytest.raises(ModelError, match="direction='UP'"):
        run(device_index, "BitShift", [np.ones(3, np.uint8)] * 2, direction="UP")
    with pytest.raises(ModelError, match="a bound has shape"):
        run(device_index, "Clip", [x, random_array((3,))])
    with pytest.raises(UnsupportedOperatorError, match="kernels exist for"):
        registry.apply("Sin", [TensorInfo("x", "float64", (3,))], {}, 23)
