"""Local errors of a converted package: its own operators, fed the oracle; unrounded weights."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.fakes import planted_defects as planted
from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.layerwise import layers, programs
from vklab.apps.compare.truth import oracle
from vklab.errors import ModelError

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((2, 24)).astype(np.float32)
W = RANDOM.standard_normal((24, 8)).astype(np.float32)
HALF = Dtypes("float16", "float16", "float32")


def made(nodes, weights, kind=TensorProto.FLOAT):
    """Return a model that maps x to y."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(
        nodes,
        "net",
        infos[:1],
        infos[1:],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def wide_form(alpha=0.01):
    return made(
        [
            helper.make_node("MatMul", ["x", "dot_weight"], ["dot"]),
            helper.make_node("LeakyRelu", ["dot"], ["y"], alpha=alpha),
        ],
        {"dot_weight": W},
    )


def half_form(weights=W, alpha=0.01):
    """Return what coremltools makes of the same model in float16, with its marks in the names."""
    narrow, full = int(TensorProto.FLOAT16), int(TensorProto.FLOAT)
    return made(
        [
            helper.make_node("Cast", ["x"], ["x_to_fp16"], to=narrow),
            helper.make_node("MatMul", ["x_to_fp16", "dot_weight_to_fp16"], ["dot_cast_fp16"]),
            helper.make_node("LeakyRelu", ["dot_cast_fp16"], ["y_cast_fp16"], alpha=alpha),
            helper.make_node("Cast", ["y_cast_fp16"], ["y"], to=full),
        ],
        {"dot_weight_to_fp16": weights.astype(np.float16)},
    )


TRUTH = oracle.of_graph(wide_form(), {"x": X})


def test_rounded_weights_are_told_from_arithmetic():
    found = programs.of_package(half_form(), wide_form(), TRUTH, {"image": X})
    assert not found.notes and found.names["dot_cast_fp16"] == "dot"
    given = found.local(HALF)
    run = planted.single(given.model, given.inputs)
    rows = {
        each.name: each
        for each in found.renamed(
            layers.by_layer(found.model, found.truth.layers, HALF, {}, given, run)
        )
    }
    dot = rows["dot"]
    assert 0 < dot.weights < dot.local < 1e-2 and 0 < dot.arithmetic < 1e-2 and dot.share < 1
    rounding = np.abs(oracle.rounded(X, "float16") @ (W.astype(np.float16).astype(float) - W)).max()
    assert dot.weights == pytest.approx(rounding)
    assert rows["y_cast_fp16"].weights == 0


def test_the_oracles_values_are_fed_where_names_join():
    found = programs.of_package(half_form(), wide_form(), TRUTH, {"x": X})
    assert np.array_equal(found.truth.layers["dot_cast_fp16"], TRUTH.layers["dot"])
    fed = found.local(HALF).inputs["dot_cast_fp16"]
    assert np.array_equal(fed, TRUTH.layers["dot"].astype(np.float16))


def test_layers_of_other_names_join_by_their_values():
    """As `getitem` of one exporter is `_native_batch_norm_legit_no_training` of another."""
    node = helper.make_node
    other = made(
        [
            node("MatMul", ["x", "w"], ["product"]),
            node("Identity", ["product"], ["copy"]),
            node("LeakyRelu", ["copy"], ["y"], alpha=0.01),
        ],
        {"w": W},
    )
    found = programs.of_package(other, other, TRUTH, {"x": X})
    assert found.names["product"] == "dot" and "copy" not in found.names
    assert found.truth.layers["product"] is TRUTH.layers["dot"]
    twice = made(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Neg", ["a"], ["b"]),
            node("Neg", ["b"], ["c"]),
            node("LeakyRelu", ["c"], ["y"], alpha=0.01),
        ],
        {"w": W},
    )
    truth = oracle.of_graph(twice, {"x": X})  # two layers of it are alike: none is taken
    found = programs.of_package(other, other, truth, {"x": X})
    assert not {"product", "copy"} & found.names.keys()


def test_a_conversion_that_changed_the_model_is_named():
    found = programs.of_package(half_form(alpha=0.02), wide_form(alpha=0.02), TRUTH, {"x": X})
    assert "departs from the model at 'y'" in found.notes[0]


def test_a_weight_counts_only_if_it_rounds_to_the_stored_one():
    other = W.copy()
    other[3, 3] += 0.25
    model, count = programs.unrounded(half_form(), wide_form())
    assert count == 1 and model.graph.initializer[0].data_type == TensorProto.FLOAT
    _, count = programs.unrounded(half_form(other), wide_form())
    assert count == 0
    found = programs.of_package(half_form(other), wide_form(), TRUTH, {"x": X})
    assert found.notes[0] == programs.NOTE and "departs" in found.notes[1]


def test_a_package_with_other_inputs_has_no_layers():
    with pytest.raises(ModelError, match="has the inputs x, the model has a, b"):
        programs.of_package(half_form(), None, TRUTH, {"a": X, "b": X})


def test_a_package_without_a_float32_form_has_no_unrounded_weights():
    found = programs.of_package(half_form(), None, TRUTH, {"x": X})
    assert found.exact is found.model and programs.NOTE in found.notes
