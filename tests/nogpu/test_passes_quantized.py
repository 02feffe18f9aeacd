"""Passes on codes of 8 bits: what is fused, what is widened, and how weights are laid out."""

from __future__ import annotations

import numpy as np
import pytest

from support.graphs.quantized_models import Drawn, product
from support.models.planned import next_chunk
from vklab import settings
from vklab.graph import onnx_import, passes
from vklab.ops import words_product


def rewritten(proto, **switches):
    with settings.settings(**switches):
        graph = onnx_import.load_graph(proto)
        chunk, _ = next_chunk(graph, {info.name: info for info in graph.inputs})
        return chunk.graph, passes.run(chunk.graph)


def kinds(graph):
    return [node.op_type for node in graph.nodes]


def weights_bytes(graph):
    return sum(info.size_bytes for info in graph.initializers.values())


def test_a_product_between_scalings_is_one_node_of_words():
    proto, _ = product("Conv", (1, 8, 9, 9), (16, 8, 3, 3), between="Relu", zeros=False)
    before, after = rewritten(proto)
    assert kinds(before) == [
        "DequantizeLinear",
        "DequantizeLinear",
        "Conv",
        "Relu",
        "QuantizeLinear",
    ]
    assert kinds(after) == ["PackWords", "ConvWords", "UnpackWords"]
    (node,) = (node for node in after.nodes if node.op_type == "ConvWords")
    low, high = node.attributes["limits"]
    assert low == node.attributes["zeros"][1] and high == 127
    assert weights_bytes(after) == 16 * 8 * 9 + 16 * 16


def test_weights_that_nothing_integer_reads_are_widened_once():
    made = Drawn(0)
    codes = made.constant("codes", made.codes("int8", (7, 5)))
    scale, zero = np.full(5, 0.1, np.float32), made.codes("int8", (5,))
    real = made.scaling("DequantizeLinear", codes, scale, zero, 1)
    proto = made.model(
        {"x": np.zeros((3, 7), np.float32)}, made.node("MatMul", "x", real), "float32"
    )
    before, after = rewritten(proto)
    assert kinds(before) == ["DequantizeLinear", "MatMul"] and kinds(after) == ["MatMul"]
    (weights,) = after.initializers.values()
    expected = (made.constants["codes"].astype(int) - zero.astype(int)).astype(np.float32) * scale
    np.testing.assert_array_equal(weights.constant, expected)
    _, left = rewritten(proto, DISABLE_PASSES="widen_weights")
    assert kinds(left) == ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize("form", [
    {"x_shape": (1, 8, 5, 5, 5), "w_shape": (4, 8, 1, 1, 1)},  # three spatial axes
    {"x_shape": (1, 4, 200, 200), "w_shape": (4, 1, 190, 190), "group": 4},  # a sum too long
])  # fmt: skip
def test_what_words_cannot_compute_stays_in_float(form):
    x_shape, w_shape, group = form["x_shape"], form["w_shape"], form.get("group", 1)
    proto, _ = product("Conv", x_shape, w_shape, group=group)
    _, after = rewritten(proto)
    assert "Conv" in kinds(after) and "ConvWords" not in kinds(after)


@pytest.mark.parametrize(("filters", "depth", "group"), [
    (7, 5, 1), (6, 3, 3), (15, 2, 5), (8, 4, 2), (9, 1, 9), (10, 1, 5),
])  # fmt: skip
def test_words_of_weights_multiply_like_the_weights(filters, depth, group):
    random = np.random.default_rng(0)
    weights = random.integers(-255, 256, (filters, depth, 6)).astype(np.int16)
    weights[0, 0, 0] = 255
    x = random.integers(-128, 128, (depth * group, 6))
    channels = -(-len(x) // 4) * 4
    padded = np.zeros((channels + 64, 6), np.int64)
    padded[: len(x)] = x
    each, laid = filters // group, words_product.lay_out(weights, group)
    numbers = laid[..., None].view(np.int8).astype(np.int64)
    taps = laid.shape[1]
    for row in range(filters):
        block = row // each
        expected = (weights[row] * x[block * depth : block * depth + depth]).sum()
        if depth == 1 and group == filters:
            sums = [numbers[row // 4, t, row % 4] * x[row, t % 6] for t in range(taps)]
        else:
            start = row // 4 * 4 // each * depth // 4 * 4
            sums = [
                (
                    numbers[row // 4, t, :, row % 4].ravel()
                    * padded[start : start + laid.shape[2] * 4, t % 6]
                ).sum()
                for t in range(taps)
            ]
        assert sum(sums) == expected
