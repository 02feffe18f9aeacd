"""Quantization against ONNX's reference: granularities, dtypes, ties, rounding in narrow types."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import vklab
from support.graphs.small_models import one_node, random_array
from vklab.errors import ModelError
from vklab.ops import registry
from vklab.types import TensorInfo

TARGETS = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2", "float8_e4m3fn",
           "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"]  # fmt: skip
NEWEST = onnx.defs.onnx_opset_version()
X = random_array((3, 7, 5)) * 100


def number_of(dtype: str) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def check(device: int, op_type: str, *arrays: np.ndarray | None, outputs: int = 1, **attributes):
    proto, fed = one_node(op_type, arrays, opset=NEWEST, outputs=outputs, **attributes)
    expected = ReferenceEvaluator(proto).run(None, fed)
    with vklab.load(proto, device) as session:
        got = session.run(fed)
        assert not session.host_reasons
    for one, other in zip(got.values(), expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        wide = [array.astype(np.float32) for array in (one, other)]
        np.testing.assert_allclose(*wide, rtol=1e-6)
    return got["y0"]


@pytest.mark.parametrize("dtype", TARGETS)
def test_there_and_back_by_tensor_axis_and_block(device, dtype):
    zeros = np.zeros if "float" in dtype else np.ones
    for shape, attributes in [
        ((), {}),
        ((7,), {}),
        ((5,), {"axis": -1}),
        ((3, 4, 5), {"axis": 1, "block_size": 2}),
        ((1, 7, 5), {"axis": 0, "block_size": 3}),
    ]:
        scale = (np.abs(random_array(shape, 1)) + 40).astype(np.float32)
        zero = zeros(shape).astype(dtype)
        y = check(device, "QuantizeLinear", X, scale, zero, **attributes)
        check(device, "DequantizeLinear", y, scale, zero, **attributes)


def test_halves_go_to_the_even_quotient_before_the_zero_point_is_added(device):
    x = np.arange(-20, 21, dtype=np.float32) / 2
    y = check(device, "QuantizeLinear", x, np.array(1, np.float32), np.array(101, np.uint8))
    np.testing.assert_array_equal(y, np.rint(x).astype(int) + 101)


def test_ends_saturate(device):
    x = np.array([1e30, -1e30, 300, -300, 127.5, 126.5], np.float32)
    y = check(device, "QuantizeLinear", x[2:], np.array(1, np.float32), np.array(0, np.int8))
    np.testing.assert_array_equal(y, [127, -128, 127, 126])
    y = run_plainly(device, x, "int16")
    np.testing.assert_array_equal(y[:2], [32767, -32768])
    one, zero = np.array(1, np.float32), np.array(0, "float8_e5m2")
    check(device, "QuantizeLinear", x, one, zero, saturate=0)


def run_plainly(device, x, dtype):
    proto, fed = one_node("QuantizeLinear", [x, np.array(1, np.float32), np.array(0, dtype)])
    with vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


def test_without_a_zero_point(device):
    check(device, "QuantizeLinear", X, np.array(2, np.float32))
    check(device, "QuantizeLinear", X, np.array(2, np.float32), output_dtype=number_of("int4"))
    q = (X % 100).astype(np.int32)
    check(device, "DequantizeLinear", q, np.array(0.5, np.float32))


def test_precision_is_that_of_the_quotient(device):
    x, scale = X.astype(np.float16), np.array(0.37, np.float16)
    check(device, "QuantizeLinear", x, scale, np.array(3, np.int8))
    check(device, "QuantizeLinear", x, scale, np.array(3, np.int8), precision=number_of("float32"))
    q = np.arange(-9, 9, dtype=np.int8)
    check(device, "DequantizeLinear", q, scale, output_dtype=number_of("float32"))


def test_dynamic_quantization(device):
    for x in (X, np.abs(X), -np.abs(X), np.full((3,), 7, np.float32)):
        check(device, "DynamicQuantizeLinear", x, outputs=3)


def test_shapes_that_do_not_fit_are_named():
    def apply(shape, **attributes):
        scale = TensorInfo("s", "float32", shape)
        registry.apply(
            "QuantizeLinear", [TensorInfo("x", "float32", X.shape), scale], attributes, NEWEST
        )

    for shape, attributes in [
        ((6,), {}),
        ((7,), {"axis": 5}),
        ((3, 3, 5), {"block_size": 2}),
        ((3, 4, 5), {"block_size": -2}),
    ]:
        with pytest.raises(ModelError, match="scale has shape|axis=5"):
            apply(shape, **attributes)
