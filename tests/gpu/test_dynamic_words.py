"""Products of dynamic codes: words, two or three dispatches, the bits of ONNX's own nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.graphs.quantized_models import Drawn
from vklab import settings
from vklab.apps.quantization import quantize

WORDS = {"conv_words", "depthwise_words", "matvec_words", "words_tiled"}


def layer(op_type, x_shape, w_shape, *, w="int8", zeros=False, bias=True, relu=False, **attributes):
    """Return DynamicQuantizeLinear, a product, Cast, Mul, Add, as quantisers write them."""
    made, is_conv = Drawn(3), op_type == "ConvInteger"
    filters = w_shape[0 if is_conv else -1]
    shape = (1, filters) + (1,) * (len(w_shape) - 2) if is_conv else (filters,)
    names = ("q", "scale", "zero")
    made.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], names))
    inputs = ["q", made.constant("w", made.codes(w, w_shape)), "zero"]
    if zeros:
        inputs.append(made.constant("wz", made.codes(w, () if zeros == "one" else (filters,))))
    sums = made.node(op_type, *inputs, **attributes)
    steps = made.constant("ws", made.random.uniform(0.001, 0.01, shape).astype(np.float32))
    y = made.node(
        "Mul", made.node("Cast", sums, to=TensorProto.FLOAT), made.node("Mul", "scale", steps)
    )
    if bias:
        y = made.node("Add", y, made.constant("b", made.random.normal(size=shape).astype("f4")))
    y = made.node("Relu", y) if relu else y
    fed = {"x": made.random.normal(size=x_shape).astype(np.float32) + np.float32(0.7)}
    return made.model(fed, y, "float32"), fed


def run(proto, fed, device, **switches):
    with settings.settings(FALLBACK=False, **switches), vklab.load(proto, device) as session:
        outputs = session.run(fed)
        return outputs, [dispatch.kernel for dispatch in session.plan.dispatches]


def same(proto, fed, device, most):
    """Check the bits against the kernels for ONNX's nodes, and the number of dispatches."""
    expected, plain = run(proto, fed, device, DISABLE_PASSES="fuse_dynamic")
    made, kernels = run(proto, fed, device)
    assert not WORDS & {*plain} and WORDS & {*kernels}, kernels
    assert len(kernels) <= most, kernels
    for name, array in expected.items():
        np.testing.assert_array_equal(made[name], array)


@pytest.mark.parametrize("case", [
    ("MatMulInteger", (3, 37), (37, 11), {"zeros": "one"}),
    ("MatMulInteger", (2, 70, 64), (64, 33), {"w": "uint8", "zeros": True, "relu": True}),
    ("ConvInteger", (2, 5, 9, 7), (6, 5, 3, 3), {"pads": (1, 1, 1, 1), "relu": True}),
    ("ConvInteger", (1, 7, 40, 40), (7, 1, 3, 3), {"group": 7, "strides": (2, 2), "bias": False}),
], ids=lambda case: f"{case[0]}-{case[2]}")  # fmt: skip
def test_a_layer_has_the_bits_of_its_nodes(device, case):
    proto, fed = layer(*case[:-1], **case[-1])
    same(proto, fed, device, 2 if np.prod(case[1]) <= 4096 else 3)


def test_products_of_one_input_share_its_codes(device):
    made = Drawn(1)
    made.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]))
    parts = []
    for name in "abc":
        sums = made.node(
            "MatMulInteger", "q", made.constant(name, made.codes("int8", (24, 20))), "zero"
        )
        step = made.node("Mul", "scale", made.constant(f"{name}s", np.float32(0.01)))
        parts.append(made.node("Mul", made.node("Cast", sums, to=TensorProto.FLOAT), step))
    fed = {"x": made.random.normal(size=(5, 24)).astype(np.float32)}
    proto = made.model(fed, made.node("Sum", *parts), "float32")
    made_of, kernels = run(proto, fed, device)
    assert kernels.count("dynamic_codes") == 1 and sum(each in WORDS for each in kernels) == 3
    same(proto, fed, device, 5)


@pytest.mark.parametrize("values", [
    [0.0, 0.0], [3.0, 3.0], [-2.0, -1.0], [np.inf, 1.0], [np.nan, 1.0], [1e-42, 1e-43],
], ids=str)  # fmt: skip
def test_ranges_of_every_kind(device, values):
    proto, fed = layer("MatMulInteger", (2, 5), (5, 3))
    fed["x"].ravel()[:] = np.resize(np.array(values, np.float32), 10)
    made, _ = run(proto, fed, device)
    (y,) = made.values()
    if np.isnan(values).any():
        assert np.isnan(y).all()
    elif np.isinf(values).any():
        assert not np.isfinite(y).any()
    else:
        same(proto, fed, device, 2)


def test_quantising_without_data_makes_few_dispatches(device):
    made = Drawn(2)
    weights = [
        made.constant(name, made.random.normal(size=shape).astype(np.float32) / 4)
        for name, shape in (("a", (8, 3, 3, 3)), ("b", (8 * 36, 12)), ("c", (12, 10)))
    ]
    y = made.node("Relu", made.node("Conv", "x", weights[0]))
    y = made.node("Gemm", made.node("Flatten", y), weights[1])
    y = made.node("MatMul", made.node("Relu", y), weights[2])
    fed = {"x": made.random.normal(size=(2, 3, 8, 8)).astype(np.float32)}
    proto = made.model(fed, y, "float32")
    (expected,) = run(proto, fed, device)[0].values()
    quantised = quantize.quantize(proto).proto
    assert {"ConvInteger", "MatMulInteger"} <= {node.op_type for node in quantised.graph.node}
    outputs, kernels = run(quantised, fed, device)
    (got,) = outputs.values()
    assert kernels[::2] == ["dynamic_codes"] * 3 and {*kernels[1::2]} <= WORDS
    assert abs(got - expected).max() < 0.05 * abs(expected).max()


def test_the_output_of_onnx_runtime_uses_the_same_kernels(device, tmp_path):
    tools = pytest.importorskip("onnxruntime.quantization")
    made = Drawn(5)
    weights = [
        made.constant(name, made.random.normal(size=shape).astype(np.float32) / 4)
        for name, shape in (("a", (6, 4, 3, 3)), ("b", (6 * 36, 10)))
    ]
    y = made.node("Conv", "x", weights[0], made.constant("ab", np.ones(6, np.float32)))
    y = made.node("Gemm", made.node("Flatten", made.node("Relu", y)), weights[1])
    fed = {"x": made.random.normal(size=(1, 4, 8, 8)).astype(np.float32)}
    onnx.save(made.model(fed, y, "float32"), tmp_path / "float.onnx")
    tools.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    same(str(tmp_path / "int8.onnx"), fed, device, 4)


def test_unknown_weights_keep_the_nodes_of_onnx(device):
    proto, fed = layer("MatMulInteger", (3, 8), (8, 4))
    (weight,) = [each for each in proto.graph.initializer if each.name == "w"]
    proto.graph.initializer.remove(weight)
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.INT8, (8, 4)))
    fed["w"] = numpy_helper.to_array(weight)
    _, kernels = run(proto, fed, device)
    assert "matmul_integer" in kernels
