"""Rules for host nodes: what ONNX Runtime would not come back from is refused or runs elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.graphs.small_models import model, one_node, value
from vklab.errors import ModelError
from vklab.graph import onnx_import
from vklab.runtime import host
from vklab.runtime.on_cpu import host_rules

F = np.ones
REFUSED = {
    "max_skip_count reaches 1099511627776": ("TfIdfVectorizer", [np.arange(3)], {
        "max_gram_length": 2, "max_skip_count": 2**40, "min_gram_length": 1, "mode": "TF",
        "ngram_counts": [0, 1], "ngram_indexes": [0], "pool_int64s": [1]}),
    "sample_size reaches 1073741824": ("Multinomial", [F((1, 3), "f")], {"sample_size": 1 << 30}),
    "size reaches 1000000000": ("HannWindow", [np.array(10**9)], {}),
    "dft_length reaches 134217728": ("DFT", [F((1, 4, 1), "f"), np.array(1 << 27)], {}),
    "frame_step reaches 0; .* of at least 1": ("STFT", [
        F((1, 16, 1), "f"), np.array(0), None, np.array(4)], {}),
    "frame_length reaches 0": ("STFT", [F((1, 16, 1), "f"), np.array(1), None, np.array(0)], {}),
    "split reaches 0": ("SplitToSequence", [F(4, "f"), np.array(0)], {}),
    "q_num_heads reaches 0": ("Attention", [F((1, 3, 6), "f")] * 3, {"q_num_heads": 0}),
    "a kernel of shape": ("Conv", [F((1, 1, 4, 4), "f"), F((1, 1, 0, 0), "f")], {}),
    "qkv_hidden_sizes reaches -6": ("com.microsoft.Attention", [
        F((1, 3, 6), "f"), F((6, 18), "f"), F(18, "f")],
        {"num_heads": 2, "qkv_hidden_sizes": [-6, -6, 30]}),
}  # fmt: skip


def chunk(op_type, arrays, attributes, opset=23):
    """Return a chunk of one node and what feeds it."""
    domain, _, name = op_type.rpartition(".")
    proto, fed = one_node(name, arrays, opset=opset, domain=domain, **attributes)
    return host.HostChunk(onnx_import.load_graph(proto)), fed


def test_each_rule_refuses_what_does_not_come_back():
    for text, (op_type, arrays, attributes) in REFUSED.items():
        made, fed = chunk(op_type, arrays, attributes, opset=17 if op_type == "DFT" else 23)
        with pytest.raises(ModelError, match=text):
            made.run(fed)


def test_parts_of_a_sequence_may_be_empty():
    made, fed = chunk("SplitToSequence", [F(0, "f"), np.array([0, 0])], {})
    assert [part.shape for part in made.run(fed)["y0"]] == [(0,), (0,)]


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_integers_are_divided_as_on_a_device(op_type):
    least = np.iinfo(np.int64).min
    a, b = np.array([least, least, 7, -7]), np.array([-1, 2, 2, 2])
    made, fed = chunk(op_type, [a, b], {})
    expected = [least, least // 2, 3, -3] if op_type == "Div" else [0, 0, 1, 1]
    assert made.run(fed)["y0"].tolist() == expected and made.runner == "onnx.reference"
    harmless = {**fed, "x1": np.abs(b)}
    assert made.run(harmless)["y0"].tolist()[1:] == expected[1:] and made.runner == "onnxruntime"
    made.run({**fed, "x1": b * 0})  # no signal
    assert made.runner == "onnx.reference"


def test_a_division_between_other_nodes_is_a_part():
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.INT32),
        helper.make_node("Neg", ["n"], ["b"]),
        helper.make_node("Div", ["a", "b"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    inputs = [value("x", [2]), value("n", [2], TensorProto.INT32)]
    graph = onnx_import.load_graph(model(nodes, inputs, ["y", "b"]))
    parts = host_rules.parts(graph)
    assert [[node.op_type for node in part.nodes] for part in parts] == [
        ["Cast", "Neg"],
        ["Div"],
        ["Cast"],
    ]
    assert [part.outputs for part in parts] == [("a", "b"), ("c",), ("y",)]
    fed = {"x": np.array([-(2.0**31), 9], np.float32), "n": np.array([1, -2], np.int32)}
    made = host.HostChunk(graph).run(fed)
    assert made["y"].tolist() == [-(2.0**31), 4] and made["b"].tolist() == [-1, 2]


def test_floats_are_divided_in_one_part_with_their_neighbours():
    nodes = [helper.make_node("Div", ["x", "x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    graph = onnx_import.load_graph(model(nodes, [value("x", [2])], ["y"]))
    assert host_rules.parts(graph) == [graph]
