"""The benchmark models have the published structure, and run to finite outputs that vary."""

from __future__ import annotations

import collections
import importlib
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from vklab.apps.compare.models import graphs
from vklab.errors import ModelError, SetupError

DATA = Path(__file__).resolve().parents[2] / "data"
MIB = 2**20

CONV_FEW = "Conv Relu MaxPool Conv Relu Conv Relu Reshape MatMul Add Softmax"
CONV_MANY = (
    "Conv Relu MaxPool Conv Relu MaxPool Conv Relu Conv Relu MaxPool Reshape MatMul Add Softmax"
)
MNIST12 = (
    "Reshape Conv Add Relu MaxPool Conv Add Relu MaxPool Reshape MatMul Add"  # the zoo's 12 nodes
)
MLP = "Reshape Gemm Relu Gemm Relu Gemm Softmax"
MINI_CLASSIFIER = "Conv Relu Conv Relu AveragePool Reshape Gemm Relu Gemm"


def op_types(model: onnx.ModelProto) -> str:
    return " ".join(node.op_type for node in model.graph.node)


def weight_shapes(model: onnx.ModelProto, rank: int) -> list[tuple[int, ...]]:
    tensors = model.graph.initializer
    return [
        tuple(t.dims) for t in tensors if len(t.dims) == rank and t.data_type == TensorProto.FLOAT
    ]


def weight_bytes(model: onnx.ModelProto) -> int:
    """Count the bytes of all float weights."""
    tensors = model.graph.initializer
    return sum(len(t.raw_data) for t in tensors if t.data_type == TensorProto.FLOAT)


def run(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (output,) = session.run(None, graphs.sample_inputs(model))
    return output


def check_output(model: onnx.ModelProto, softmax: bool) -> None:
    output = run(model)
    assert output.shape == (1, 10) and np.isfinite(output).all()
    assert len(np.unique(output)) == 10, output
    if softmax:
        assert output.sum() == pytest.approx(1, abs=1e-5)
        # A saturated softmax hides errors of the layers before it.
        assert output.max() < 0.99, output
    else:
        assert 0.1 < output.std() < 10, output


@pytest.mark.parametrize("n", [1, 10, 100, 1000, 10000])
def test_chain_add(n):
    model = graphs.build(f"chain_add_{n}")
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Add"] * n
    assert len(model.graph.initializer) == 1
    if n <= 1000:
        start = graphs.sample_inputs(model)["x"]
        assert start.shape == (1,)
        np.testing.assert_allclose(run(model), start + n * 0.001, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "ops", "softmax"),
    [("mnist12", MNIST12, False), ("mlp", MLP, True), ("conv_few", CONV_FEW, True)],
)
@pytest.mark.full
def test_small_models_have_the_published_nodes(name, ops, softmax):
    model = graphs.build(name)
    onnx.checker.check_model(model, full_check=True)
    assert op_types(model) == ops
    check_output(model, softmax)


def test_mnist12_is_the_zoo_graph():
    model = graphs.mnist12()
    assert model.opset_import[0].version == 12
    assert weight_shapes(model, 4) == [(16, 4, 4, 10), (8, 1, 5, 5), (16, 8, 5, 5)]
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    for conv in convs:
        attributes = {a.name: helper.get_attribute_value(a) for a in conv.attribute}
        assert attributes == {"kernel_shape": [5, 5], "auto_pad": b"SAME_UPPER"}
        assert len(conv.input) == 2


def test_weight_shapes_are_the_published_ones():
    assert weight_shapes(graphs.mlp(), 2) == [(256, 784), (128, 256), (10, 128)]
    few = graphs.conv_few()
    assert weight_shapes(few, 4) == [(16, 1, 3, 3), (512, 16, 3, 3), (512, 512, 3, 3)]
    assert weight_shapes(few, 2) == [(512 * 14 * 14, 10)]


@pytest.mark.slow
def test_conv_many():
    model = graphs.conv_many()
    assert op_types(model) == CONV_MANY
    assert weight_shapes(model, 4) == [
        (768, 1, 3, 3),
        (512, 768, 3, 3),
        (512, 512, 7, 7),
        (2048, 512, 7, 7),
    ]
    assert round(weight_bytes(model) / MIB) == 259
    check_output(model, softmax=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "widths", "mebibytes"),
    [
        ("matmul_1layers", [784, 337920, 10], 1024),
        ("matmul_16layers", [784, *[4096] * 16, 10], 972),
    ],
)
def test_matmul_models(name, widths, mebibytes):
    model = graphs.build(name)
    layers = len(widths) - 1
    assert op_types(model) == " ".join(["Reshape", *["MatMul"] * layers, "Softmax"])
    assert weight_shapes(model, 2) == list(zip(widths, widths[1:], strict=False))
    assert round(weight_bytes(model) / MIB) == mebibytes
    check_output(model, softmax=True)


def test_committed_mini_classifier():
    model = onnx.load(DATA / "mini_classifier.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert op_types(model) == MINI_CLASSIFIER
    assert weight_shapes(model, 4) == [(32, 3, 3, 3), (64, 32, 3, 3)]
    assert weight_shapes(model, 2) == [(128, 1024), (10, 128)]
    check_output(model, softmax=False)


@pytest.mark.full
def test_mini_classifier_is_exported_from_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(7)
    expected_next = torch.rand(1).item()
    torch.manual_seed(7)
    model = graphs.build("mini_classifier")
    assert torch.rand(1).item() == expected_next, "the export used up random numbers of the caller"
    module = graphs.load_mini_classifier().build_module()
    image = graphs.sample_inputs(model)["image"]
    with torch.no_grad():
        truth = module(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(run(model), truth, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        run(onnx.load(DATA / "mini_classifier.onnx")), truth, rtol=1e-4, atol=1e-4
    )


def test_mini_classifier_without_torch_says_what_to_do(monkeypatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SetupError, match="pip install torch"):
        graphs.mini_classifier()


@pytest.mark.parametrize("name", ["mlp", "mnist12", "chain_add_10"])
def test_the_same_name_gives_the_same_model(name):
    first, second = graphs.build(name), graphs.build(name)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("name", ["", "resnet", "chain_add", "chain_add_-1", "chain_add_x", "MLP"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ModelError) as caught:
        graphs.build(name)
    assert repr(name) in str(caught.value)
    assert re.search("chain_add_N.*mnist12.*conv_many.*mini_classifier", str(caught.value))


def test_a_chain_has_at_least_one_node():
    with pytest.raises(ModelError, match="at least 1"):
        graphs.build("chain_add_0")


def test_build_knows_chains_of_any_length():
    assert len(graphs.build("chain_add_37").graph.node) == 37


def test_registry_names_its_models():
    names = collections.Counter(graphs.build(name).graph.name for name in ("mlp", "mnist12"))
    assert set(names) == {"mlp", "mnist12"}
    assert {"chain_add_10000", "conv_few", "matmul_1layers"} <= set(graphs.MODELS)


def graph_with_inputs(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph([], "g", list(inputs), []))


def test_sample_inputs_follow_type_and_shape():
    values = [
        helper.make_tensor_value_info("f", TensorProto.FLOAT, ["batch", 3, None, 0]),
        helper.make_tensor_value_info("h", TensorProto.FLOAT16, []),
        helper.make_tensor_value_info("i", TensorProto.INT64, [1031]),
        helper.make_tensor_value_info("u", TensorProto.UINT8, [7]),
        helper.make_tensor_value_info("b", TensorProto.BOOL, [7]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]),
    ]
    model = graph_with_inputs(*values)
    # Before IR version 4 a weight had to be listed among the inputs too.
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2]))
    inputs = graphs.sample_inputs(model)
    assert {name: (array.shape, str(array.dtype)) for name, array in inputs.items()} == {
        "f": ((1, 3, 1, 0), "float32"),
        "h": ((), "float16"),
        "i": ((1031,), "int64"),
        "u": ((7,), "uint8"),
        "b": ((7,), "bool"),
    }
    assert all(isinstance(array, np.ndarray) for array in inputs.values())
    assert inputs["i"].min() == 0 and inputs["i"].max() == 9


def test_sample_inputs_depend_on_the_seed_only():
    model = graphs.mlp()
    first, again = graphs.sample_inputs(model)["image"], graphs.sample_inputs(model)["image"]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, graphs.sample_inputs(model, seed=1)["image"])
    weight = onnx.numpy_helper.to_array(model.graph.initializer[1])
    assert abs(np.corrcoef(first.ravel(), weight[0])[0, 1]) < 0.2, "input repeats the weights"


@pytest.mark.parametrize(
    "value",
    [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("x", TensorProto.STRING, [1]),
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]),
    ],
    ids=["no rank", "string", "sequence"],
)
def test_sample_inputs_refuse_what_they_cannot_make(value):
    with pytest.raises(ModelError, match="'x'"):
        graphs.sample_inputs(graph_with_inputs(value))
