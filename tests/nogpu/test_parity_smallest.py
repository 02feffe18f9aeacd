"""The smallest failing part of a model, found and saved."""

import numpy as np
import onnx

from support.fakes import planted_defects as planted
from vklab.apps.compare.layerwise import layers, smallest
from vklab.apps.compare.truth import oracle

MODEL, INPUTS = planted.small_model()
TRUTH = oracle.of_graph(MODEL, INPUTS)


def without_a_relu(model, inputs):
    """Run a model on a backend that drops a Relu right behind a convolution, as a wrong fusion."""
    other = planted.spoilt(model)
    convolved = {n.output[0] for n in other.graph.node if n.op_type == "Conv"}
    for node in other.graph.node:
        if node.op_type == "Relu" and node.input[0] in convolved:
            node.op_type = "Identity"
    return planted.single(other, inputs)


def test_one_wrong_node_is_the_smallest_part(tmp_path):
    spoil = planted.transposed("w3")

    def run(model, inputs):
        return planted.single(spoil(model), inputs)

    found = smallest.find(MODEL, TRUTH.layers, "product", planted.SINGLE, run)
    assert found.nodes == ("node_product",) and found.share > planted.VISIBLE
    paths = smallest.save(found, tmp_path / "made" / "part.onnx")
    model = onnx.load(paths[0])
    onnx.checker.check_model(model)
    assert "node_product" in model.doc_string
    inputs, expected = (dict(np.load(path)) for path in paths[1:])
    right = planted.single(model, inputs)["product"]
    assert np.abs(right - expected["product"]).max() < 1e-4
    assert np.abs(run(model, inputs)["product"] - expected["product"]).max() > 1


def test_a_wrong_fusion_needs_two_nodes():
    rows = planted.rows_of(MODEL, INPUTS, TRUTH, planted.SINGLE, without_a_relu)
    failing = layers.first_failing(rows)
    assert failing.name == "relu_1" and failing.share == 0  # alone, the Relu is right
    found = smallest.find(MODEL, TRUTH.layers, "relu_1", planted.SINGLE, without_a_relu)
    assert found.nodes == ("node_conv_1", "node_relu_1")


def test_a_right_model_has_no_failing_part():
    found = smallest.find(MODEL, TRUTH.layers, "logits", planted.SINGLE, planted.single)
    assert found is None
    assert smallest.find(MODEL, TRUTH.layers, "nowhere", planted.SINGLE, planted.single) is None
