"""Errors by layer and the float64 oracle, with planted defects."""

import functools
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.fakes import planted_defects as planted
from support.models import exported_models
from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.judging import lengths
from vklab.apps.compare.layerwise import cuts, layers
from vklab.apps.compare.truth import oracle
from vklab.errors import ModelError
from vklab.runtime import tolerances

MODEL, INPUTS = planted.small_model()
TRUTH = oracle.of_graph(MODEL, INPUTS)
rows_of = functools.partial(planted.rows_of, MODEL, INPUTS, TRUTH)
VALUES = ["conv", "norm", "relu", "conv_1", "relu_1", "rows", "product", "normed", "gelu",
          "product_1", "logits"]  # fmt: skip


def test_the_widened_graph_is_float64_throughout():
    assert TRUTH.kind == oracle.GRAPH and list(TRUTH.outputs) == ["logits"]
    assert {a.dtype for n, a in TRUTH.layers.items() if n != "shape"} == {np.dtype(np.float64)}
    made = planted.single(MODEL, INPUTS)["logits"]
    assert 0 < np.abs(made - TRUTH.outputs["logits"]).max() < 1e-4
    assert MODEL.graph.initializer[0].data_type == TensorProto.FLOAT  # the model is unchanged


def test_widening_reaches_casts_bodies_and_constants():
    body = helper.make_graph(
        [
            helper.make_node("Constant", [], ["c"], value_float=0.1),
            helper.make_node("Add", ["x", "c"], ["z"]),
        ],
        "body",
        [],
        [onnx.ValueInfoProto(name="z")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["n"], ["x"], to=TensorProto.FLOAT16),
            helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=body),
            helper.make_node("ConstantOfShape", ["s"], ["o"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
        ],
        [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="o")],
        [numpy_helper.from_array(np.array([3]), "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    made = oracle.of_graph(model, {"n": np.array([1, 4097]), "yes": np.array(True)}).outputs
    assert made["y"].dtype == made["o"].dtype == np.float64
    np.testing.assert_allclose(made["y"], [1.1, 4097.1], rtol=1e-7)


@pytest.mark.parametrize("opset", [9, 12, 13, 14])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax", "BatchNormalization"])
def test_old_operators_are_those_of_onnx_runtime(op_type, opset):
    random = np.random.default_rng(0)
    fed = {"x": random.standard_normal((2, 3, 4, 5)).astype(np.float32)}
    if op_type == "BatchNormalization":
        fed |= {name: np.abs(random.standard_normal(3)).astype(np.float32) for name in "abcd"}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in fed.items()]
    graph = helper.make_graph(
        [helper.make_node(op_type, [*fed], ["y"])],
        "g",
        infos,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4, 5])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    truth = oracle.of_graph(model, fed).outputs["y"]
    np.testing.assert_allclose(planted.single(model, fed)["y"], truth, rtol=1e-4, atol=1e-6)


def test_rounding_clips_instead_of_overflowing():
    values = np.array([1e6, -1e6, 1 / 3, np.inf, 5e-8])
    held = oracle.rounded(values, "float16")
    assert held.tolist()[:2] == [65504.0, -65504.0] and held[3] == np.inf
    assert held[2] == float(np.float16(1 / 3)) and held.dtype == np.float64
    assert oracle.rounded(values, "int8") is values
    assert oracle.rounded(np.arange(3), "float16").dtype.kind == "i"


def test_a_dtype_stores_what_is_too_large_as_infinite():
    values = np.array([1e6, 1 / 3], np.float32)
    assert oracle.stored(values, "float16").tolist() == [np.inf, float(np.float16(1 / 3))]
    assert oracle.stored(values, "float32") is values and oracle.stored(values, "int8") is values
    assert oracle.stored(np.arange(3), "float16").dtype.kind == "i"


def test_a_model_without_a_reference_is_refused_by_name():
    graph = helper.make_graph(
        [helper.make_node("Strange", ["x"], ["y"], domain="ours")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ours", 1)])
    with pytest.raises(ModelError, match="no float64 oracle: onnx.reference cannot .*Strange"):
        oracle.of_graph(model, {"x": np.ones(1, np.float32)})


@pytest.mark.slow
def test_a_torch_module_is_the_truth_and_its_layers_join():
    import torch
    from torch import nn

    from vklab.apps.pytorch import exporter

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()
    image = torch.randn(1, 3, 9, 9)
    model = exporter.export_module(module, (image,), None)[0].model_proto
    found = oracle.of_module(module, model, {model.graph.input[0].name: image.numpy()})
    name = model.graph.output[0].name
    with torch.no_grad():
        assert np.abs(found.outputs[name] - module(image).numpy()).max() < 1e-6
    assert module[0].weight.dtype == torch.float32
    export = np.abs(found.outputs[name] - found.exported[name]).max()
    assert 0 < export < 1e-6  # BatchNorm is folded into the convolution in float32
    joined = layers.join(found.modules, found.layers)
    assert len(joined) >= len(model.graph.node) - 1
    for other, layer in joined.items():
        assert np.abs(found.modules[other] - found.layers[layer]).max() < 1e-6, other
    fx = oracle.load_fx()
    program = fx.capture(module, [image.numpy()])
    for dtypes in (planted.SINGLE, planted.HALF, Dtypes("bfloat16", "bfloat16", "float32")):
        given = layers.of_module(program, [image.numpy()], found.modules, dtypes)
        made = fx.alone(program, [image.numpy()], given.inputs, dtypes.arithmetic, dtypes.weights)
        named = {f"{name}{cuts.LOCAL}": value for name, value in made.items()}
        rows = layers.by_layer(model, found.layers, dtypes, {}, given, named)
        measured = [row for row in rows if row.share is not None]
        assert len(measured) >= len(rows) - 1 and all(row.share <= 0.5 for row in measured)
        spoilt = {**named, "gelu/local": named["gelu/local"] * 1.5}
        rows = layers.by_layer(model, found.layers, dtypes, {}, given, spoilt)
        assert layers.first_failing(rows).name == "gelu"


def test_a_layer_of_several_nodes_has_the_terms_of_all():
    truth = TRUTH.layers
    given = layers.Local(
        onnx.ModelProto(), {}, {"logits/local": truth["logits"]}, {"logits/local": truth["logits"]}
    )
    rows = layers.by_layer(MODEL, truth, planted.SINGLE, {}, given, given.truth)
    assert rows[-1].name == "logits" and rows[-1].terms == 72 and "functions" in rows[-1].reason


@pytest.mark.slow
def test_a_module_is_the_truth_where_its_graph_has_no_reference():
    import torch

    graph = helper.make_graph(
        [helper.make_node("Strange", ["x"], ["y"], domain="ours")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ours", 1)])
    found = oracle.of_module(torch.nn.Softplus(), model, {"x": np.zeros(2, np.float32)})
    np.testing.assert_allclose(found.outputs["y"], np.log(2), rtol=1e-15)
    assert not found.exported and "no row 'export'" in found.notes[0]


# --------------------------------------------------------------------------------------- layers


@pytest.mark.parametrize(("dtypes", "run"), [(planted.SINGLE, planted.single),
                                             (planted.HALF, planted.half)])  # fmt: skip
def test_a_right_backend_stays_inside_at_every_layer(dtypes, run):
    rows = rows_of(dtypes, run)
    assert [row.name for row in rows] == VALUES
    assert all(row.share <= 0.5 and row.cumulative_share <= 1 for row in rows)
    assert layers.first_failing(rows) is None
    terms = {row.name: row.terms for row in rows}
    assert (terms["conv"], terms["conv_1"], terms["product"], terms["normed"]) == (27, 72, 16, 16)


def test_only_rounded_weights_have_a_part_of_weights():
    rows = {row.name: row for row in rows_of(planted.HALF, planted.half)}
    assert rows["conv"].weights > 0 and rows["relu"].weights == rows["gelu"].weights == 0
    assert rows["conv"].local <= rows["conv"].weights + rows["conv"].arithmetic + 1e-12
    assert rows["product_1"].weights > 0  # through a Transpose of the weight
    assert all(row.weights == 0 for row in rows_of(planted.SINGLE, planted.single))


@pytest.mark.parametrize("dtypes", [planted.SINGLE, planted.HALF], ids=["float32", "float16"])
@pytest.mark.parametrize(("kind", "layer", "spoil"), planted.defects(MODEL))
def test_a_visible_defect_is_found_at_its_layer(kind, layer, spoil, dtypes):
    found = planted.study(MODEL, INPUTS, kind, layer, spoil, dtypes)
    if found.times > planted.VISIBLE:
        assert found.named == layer, found
    elif found.times < 0.5:
        assert found.named == "", found


def test_both_visible_and_invisible_defects_were_tried():
    half = [planted.study(MODEL, INPUTS, *each, planted.HALF) for each in planted.defects(MODEL)]
    said = "\n".join(map(str, half))
    assert "times the tolerance: invisible" in said and "found at" in said


def test_an_overflow_of_float16_is_found_where_it_happens():
    model = planted.overflowing(MODEL)
    truth = oracle.of_graph(model, INPUTS).layers
    given = layers.local(model, truth, planted.HALF)
    made = planted.half(given.model, given.inputs)
    rows = layers.by_layer(model, truth, planted.HALF, {}, given, made)
    assert layers.first_failing(rows).name == "product" and rows[6].share == math.inf
    assert rows[6].summary()["local"] is None  # JSON has no infinity


def test_cumulative_errors_alone_name_a_layer_too():
    truth = TRUTH.layers
    run = {name: truth[name].astype(np.float32) for name in VALUES}
    run["gelu"] = run["gelu"] + np.float32(0.1)
    rows = layers.by_layer(MODEL, truth, planted.SINGLE, run)
    assert layers.first_failing(rows).name == "gelu" and rows[0].local is None


def test_names_of_converters_join_and_other_shapes_do_not():
    truth = {"linear": np.ones((2, 3)), "relu": np.ones(3), "view": np.ones(6)}
    found = {"linear_cast_fp16": np.ones((2, 3)), "relu": np.ones(3), "view": np.ones((2, 3))}
    assert layers.join(truth, found) == {"linear": "linear_cast_fp16", "relu": "relu"}


def test_names_of_core_ml_join():
    truth = {"linear": np.ones(3), "embedding": np.ones(2), "add_0": np.ones(1), "mean": np.ones(4)}
    made = {
        "linear_0_cast_fp16": np.ones(3),
        "embedding_cast_fp16_cast_uint16": np.ones(2),
        "add_0": np.ones(1),
        "mean_to_fp16": np.ones(4),
    }
    assert layers.join(truth, made) == dict(zip(truth, made, strict=True))


def test_cumulative_errors_can_be_left_out():
    rows = [
        layers.Layer("a", "node_a", "Conv", 1, 1.0, 5.0, 5.0),
        layers.Layer("b", "node_b", "Conv", 1, 1.0),
    ]
    assert layers.first_failing(rows).name == "a"
    assert layers.first_failing(rows, cumulative=False) is None


def test_taps_that_move_the_outputs_are_not_trusted():
    allowed = tolerances.model("float32")
    plain = {"y": np.ones(3)}
    near = layers.taps(plain, {"y": np.ones(3) + 1e-6, "tap": np.ones(1)}, allowed)
    assert near.trusted and "at most 1e-06" in str(near)
    far = layers.taps(plain, {"y": np.ones(3) + 0.1}, allowed)
    assert not far.trusted and "another computation" in str(far)
    assert not layers.taps(plain, {}, allowed).trusted


def test_only_chosen_layers_are_measured():
    given = layers.local(MODEL, TRUTH.layers, planted.SINGLE, only=["conv_1", "gelu"])
    assert [info.name for info in given.model.graph.output] == ["conv_1/local", "gelu/local"]
    assert sorted(given.inputs) == ["normed", "relu"]


@pytest.mark.parametrize(("node", "shapes", "count"), [
    (helper.make_node("Conv", ["x", "w"], ["y"], group=4), {"w": (8, 2, 3, 5)}, 30),
    (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), {"x": (7, 3)}, 7),
    (helper.make_node("ReduceMean", ["x"], ["y"]), {"x": (2, 3, 5), "y": (2, 1, 1)}, 15),
    (helper.make_node("Softmax", ["x"], ["y"], axis=1), {"x": (2, 11, 5)}, 11),
    (helper.make_node("LayerNormalization", ["x"], ["y"], axis=-2), {"x": (2, 11, 5)}, 55),
    (helper.make_node("Attention", ["q", "k", "v"], ["y"]),
     {"q": (1, 4, 7, 16), "k": (1, 4, 33, 16)}, 33),
    (helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 3]), {}, 6),
    (helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=2), {"w": (8, 4, 3, 3)}, 36),
    (helper.make_node("Relu", ["x"], ["y"]), {"x": (5, 5)}, 1),
])  # fmt: skip
def test_terms_of_a_sum(node, shapes, count):
    assert lengths.terms(node, shapes) == count


def test_a_layer_alone_has_the_inferred_type_of_an_output_that_declares_none():
    half = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [3])
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"], "exp")], "g", [half], [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    x = np.arange(3.0)
    alone = cuts.separated(model, {"x": x, "y": np.exp(x)}).model
    [output] = alone.graph.output
    assert output.name == f"y{cuts.LOCAL}"
    assert output.type.tensor_type.elem_type == TensorProto.FLOAT16


def test_bodies_and_shapes_of_separated_layers_read_the_truth():
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    branches = [
        helper.make_graph(
            [helper.make_node(op_type, ["double", "one"], ["z"])],
            op_type,
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        )
        for op_type in ("Add", "Sub")
    ]
    nodes = [
        helper.make_node("Add", ["x", "x"], ["double"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Expand", ["y", "size"], ["out"]),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
    ]
    out = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [3])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", infos, out, [one]),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    fed = {"x": np.arange(3, dtype=np.float32), "yes": np.array(True)}
    truth = oracle.of_graph(model, fed).layers
    given = layers.local(model, truth, planted.SINGLE)
    assert sorted(given.inputs) == ["double", "x", "y", "yes"]  # `size` is a constant
    made = planted.single(given.model, given.inputs)
    rows = layers.by_layer(model, truth, planted.SINGLE, {}, given, made)
    assert {row.name: row.share for row in rows} == {"double": 0, "y": 0, "out": 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "vit", "mobilenet_v3"])
def test_visible_defects_of_exported_models_are_found(name):
    model = exported_models.load(name)
    inputs = exported_models.inputs_of(model, exported_models.sizes_of(name)[0])
    studied = [planted.study(model, inputs, *each) for each in planted.defects(model)]
    print("\n".join(map(str, studied)))
    assert len(studied) > 10
    for each in studied:
        assert each.named == each.layer or each.times <= planted.VISIBLE, each


# ------------------------------------------------------------------------------- smallest part
