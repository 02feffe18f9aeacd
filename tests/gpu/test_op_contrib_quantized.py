"""Quantized operators that ONNX Runtime adds to ONNX, against ONNX Runtime.

Codes may differ by one, and rarely, where ONNX Runtime rounds between its steps.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import vklab
from support.graphs.small_models import one_node, random_array
from vklab import settings

DOMAIN = "com.microsoft"
DTYPES = [np.uint8, np.int8]


def codes(shape, dtype=np.uint8, seed=0):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(limits.min, limits.max + 1, shape, dtype)


def scaled(shape, dtype=np.uint8, scale=0.02, zero=3, seed=0):
    """Return codes, their scale and their zero point."""
    return codes(shape, dtype, seed), np.float32(scale), dtype(zero)


def run(op_type, device, arrays, more=None, **attributes):
    """Return the outputs of a device, and the model and inputs for another's."""
    arrays = [a if a is None else np.asarray(a) for a in arrays]
    proto, fed = one_node(op_type, arrays, domain=DOMAIN, **attributes)
    proto.graph.node[0].attribute.extend(
        helper.make_attribute(*pair) for pair in (more or {}).items()
    )
    for made in proto.graph.output:  # of another dtype than the first input
        made.ClearField("type")
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        return list(session.run(fed).values()), proto, fed


def exact_products(proto, fed):
    """Return ONNX Runtime's outputs, computed without saturation.

    On an x86 processor without VNNI, ONNX Runtime adds pairs of uint8 x int8 products
    in int16, and large sums saturate. Its option `session.x64quantprecision` prevents
    that, for weights that are constants: every input but the first becomes one.
    Products of int8 x int8 do not saturate, and with the option QGemm has no kernel for them.
    """
    first, *weights = fed
    for name in weights:
        proto.graph.initializer.append(numpy_helper.from_array(fed[name], name))
    kept = [i for i in proto.graph.input if i.name not in weights]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    options = onnxruntime.SessionOptions()
    if fed[first].dtype != np.int8:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, {first: fed[first]})


def check(op_type, device, arrays, few=0.02, **attributes):
    """Compare with ONNX Runtime: codes differ by one at most, and at most `few` of them."""
    found, proto, fed = run(op_type, device, arrays, **attributes)
    expected = exact_products(proto, fed)
    for left, right in zip(found, expected, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        if left.dtype == np.float32:
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
            continue
        apart = np.abs(left.astype(int) - right)
        assert apart.max(initial=0) <= 1 and np.count_nonzero(apart) <= max(1, few * apart.size), (
            apart
        )


@pytest.mark.parametrize("dtype", [*DTYPES, np.uint16, np.int16])
def test_codes_and_back(device, dtype):
    numbers = np.random.default_rng(5).uniform(-3, 3, (3, 37)).astype(np.float32)
    check("QuantizeLinear", device, [numbers, np.float32(0.02), dtype(3)])
    scales = np.float32([0.02, 0.5, 1])
    check("QuantizeLinear", device, [numbers, scales, np.full(3, 3, dtype)], axis=0)
    check("DequantizeLinear", device, scaled((3, 37), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(("a", "b"), [((7, 13), (7, 13)), ((2, 3, 5), (5,)), ((3, 1), (1, 4)),
                                      ((0, 4), (4,)), ((), (3,))])  # fmt: skip
def test_two_operands(device, op_type, dtype, a, b):
    arrays = [*scaled(a, dtype, 0.03, 5), *scaled(b, dtype, 0.011, 9, 1), np.float32(0.04)]
    check(op_type, device, [*arrays, dtype(12)])
    if a == b:
        check(op_type, device, arrays)  # without a zero point


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op_type", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_one_operand(device, op_type, dtype):
    more = {"alpha": 0.3} if op_type.endswith("Relu") else {}
    given = scaled((3, 7, 11), dtype, 0.05, 17)
    check(
        op_type, device, [*given, np.float32(1 / 200), dtype(-3 if dtype == np.int8 else 3)], **more
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op_type", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_zero_points_left_out_are_zero(device, op_type, dtype):
    x, scale, zero = scaled((3, 7), dtype, 0.05, 0)  # ONNX Runtime aborts
    found = [
        run(op_type, device, arrays)[0][0]
        for arrays in ([x, scale, None, scale], [x, scale, zero, scale, zero])
    ]
    assert found[0].dtype == dtype
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (11, 2), (13, -1), (13, 1), (13, 0)])
def test_softmax(device, dtype, opset, axis):
    given = scaled((2, 5, 7), dtype, 0.03, 7)
    zero = dtype(np.iinfo(dtype).min)
    check(
        "QLinearSoftmax",
        device,
        [*given, np.float32(1 / 256), zero],
        more={"opset": opset},
        axis=axis,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_concat(device, dtype):
    parts = [scaled((2, size, 3), dtype, 0.01 * size, size, size) for size in (1, 4, 7)]
    arrays = [np.float32(0.05), dtype(11), *(item for part in parts for item in part)]
    numbers = [0, 1, *(i for k in range(3) for i in (3 + 3 * k, 4 + 3 * k))]
    check("QLinearConcat", device, arrays, constants=numbers, axis=1)


@pytest.mark.parametrize("more", [
    {}, {"pads": (1, 1, 1, 1)}, {"pads": (1, 0, 0, 1), "count_include_pad": 1},
    {"strides": (2, 3), "ceil_mode": 1}, {"auto_pad": "SAME_UPPER"},
])  # fmt: skip
def test_average_pool(device, more):
    arrays = [*scaled((2, 3, 9, 7), zero=100), np.float32(0.015), np.uint8(90)]
    check("QLinearAveragePool", device, arrays, kernel_shape=(3, 2), **more)


@pytest.mark.parametrize("dtype", DTYPES)
def test_global_average_pool(device, dtype):
    arrays = [*scaled((2, 5, 7, 3), dtype), np.float32(0.004), dtype(4)]
    check("QLinearGlobalAveragePool", device, arrays, channels_last=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(device, dtype):
    condition = random_array((4, 1, 5)) > 0
    arrays = [condition, *scaled((3, 5), dtype), *scaled((4, 3, 1), dtype, 0.03, 8, 1)]
    check("QLinearWhere", device, [*arrays, np.float32(0.025), dtype(1)])


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("more", [{}, {"transB": 1}, {"transA": 1, "alpha": 0.5}])
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_gemm(device, kinds, more, columns):
    m, k, n = 5, 37, 11
    a = scaled((k, m) if more.get("transA") else (m, k), kinds[0])
    b = list(scaled((n, k) if more.get("transB") else (k, n), kinds[1], seed=1))
    if columns:
        b[1:] = np.linspace(0.01, 0.03, n, dtype=np.float32), np.full(n, b[2])
    bias = np.random.default_rng(2).integers(-9000, 9000, n).astype(np.int32)
    for c in (bias, None):
        check("QGemm", device, [*a, *b, c, np.float32(0.2), kinds[0](7)], **more)
        check("QGemm", device, [*a, *b, c], **more)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 7])
def test_products_to_numbers(device, dtype, columns):
    b, scales = codes((13, 7), dtype), np.linspace(0.01, 0.02, columns, dtype=np.float32)
    zeros, bias = np.full(columns, 3, dtype), random_array((7,))
    for given in ([zeros, bias], [None, bias], [zeros, None]):
        check("DynamicQuantizeMatMul", device, [random_array((2, 5, 13)), b, scales, *given])
        a = codes((2, 5, 13), seed=1)
        scale, zero = np.array([0.03], np.float32), np.array([100], np.uint8)
        check("MatMulIntegerToFloat", device, [a, b, scale, scales, zero, *given])


@pytest.mark.parametrize(("activation", "params"), [
    ("", ()), ("Relu", ()), ("LeakyRelu", (0.2,)), ("Clip", (-0.5, 0.5)), ("Tanh", ()),
    ("Sigmoid", ()), ("HardSigmoid", (0.3, 0.4)),
])  # fmt: skip
def test_fused_conv(device, activation, params):
    arrays = [random_array(s) for s in ((2, 4, 7, 5), (6, 2, 3, 3), (6,), (2, 6, 7, 5))]
    more = {"activation": activation} if activation else {}
    more |= {"activation_params": list(params)} if params else {}
    more |= {"pads": [1, 1, 1, 1], "group": 2}
    for z in (arrays[3:], []):
        check("FusedConv", device, [*arrays[:3], *z], **more)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("segments", [False, True])
def test_embedding(device, segments, masked, positions):
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 19, (3, 5)).astype(np.int32)
    arrays = [
        ids,
        ids % 2 if segments else None,
        random_array((19, 8)),
        random_array((11, 8)),
        random_array((2, 8)) if segments else None,
        *random_array((2, 8), 4),
        (ids > 5).astype(np.int32) if masked else None,
        ids % 11 if positions else None,
    ]
    while arrays[-1] is None:
        arrays.pop()
    check(
        "EmbedLayerNormalization",
        device,
        arrays,
        outputs=3,
        epsilon=1e-5,
        mask_index_type=int(masked),
    )
