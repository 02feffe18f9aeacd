"""Core ML NeuralNetworks: layers against NumPy shapes, refusals by name, weights of every form."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

from vklab.apps.compare.coreml import protobuf
from vklab.apps.compare.coreml import protobuf as messages
from vklab.apps.compare.coreml.emission import Emission
from vklab.apps.compare.coreml.network import network_layers, network_weights, neural_network
from vklab.errors import ModelError, UnsupportedOperatorError, UnusedWarning
from vklab.types import TensorInfo

FLOAT32 = 65568


def network(shape=(2, 5), dtype=FLOAT32):
    """Return a model with an input x and an output y, and no layers yet."""
    model = messages.message_class("Model")()
    model.specificationVersion = 4
    given = model.description.input.add(name="x").type.multiArrayType
    given.shape.extend(shape)
    given.dataType = dtype
    model.description.output.add(name="y")
    model.neuralNetwork.arrayInputShapeMapping = 1
    return model


def layer(model, kind, inputs=("x",), outputs=("y",), **fields):
    """Add a layer; return its parameters."""
    made = model.neuralNetwork.layers.add(name=outputs[0])
    made.input.extend(inputs)
    made.output.extend(outputs)
    parameters = getattr(made, kind)
    parameters.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(parameters, name).extend(value)
        else:
            setattr(parameters, name, value)
    return parameters


def imported(model, folder):
    """Write a model to a file and import it."""
    path = folder / "model.mlmodel"
    path.write_bytes(model.SerializeToString())
    return neural_network.import_model(path)


def inner_product(model, rows=3, columns=5):
    """Add a layer of a matrix product with a bias."""
    made = layer(model, "innerProduct", inputChannels=columns, outputChannels=rows, hasBias=True)
    made.weights.floatValue.extend(range(rows * columns))
    made.bias.floatValue.extend([1.0] * rows)
    return made


def test_a_network_keeps_its_names(tmp_path):
    model = network()
    inner_product(model)
    layer(model, "activation", ("y",), ("z",)).ReLU.SetInParent()
    model.description.output[0].name = "z"
    graph = imported(model, tmp_path)
    assert [node.op_type for node in graph.nodes] == ["Gemm", "Relu"]
    assert [str(info) for info in graph.inputs] == ["x: float32[2,5]"] and graph.outputs == ("z",)
    np.testing.assert_array_equal(
        graph.initializers["y/weight"].constant, np.arange(15, dtype=np.float32).reshape(3, 5)
    )


def test_integer_inputs_are_computed_with_as_floats(tmp_path):
    model = network(dtype=131104)
    inner_product(model)
    graph = imported(model, tmp_path)
    assert graph.inputs[0].dtype == "int32"
    assert [node.op_type for node in graph.nodes] == ["Cast", "Gemm"]


def test_layer_types_are_refused_by_name(tmp_path):
    named = [entry.split()[1] for entry in protobuf.LAYERS.split(", ")]
    refused = [kind for kind in named if kind not in network_layers.LAYERS]
    assert len(refused) > 100 and "gru" in refused
    for kind in refused[::12]:
        model = network()
        layer(model, kind)
        with pytest.raises(
            UnsupportedOperatorError,
            match=rf"operation 'y' \({kind}\): vklab has no layer type '{kind}'",
        ):
            imported(model, tmp_path)


def _without_output(model):
    del model.description.output[:]


def _no_array(model):
    model.description.input[0].type.imageType.SetInParent()


@pytest.mark.parametrize(("change", "words"), [
    (lambda m: setattr(m.neuralNetwork, "arrayInputShapeMapping", 0), "maps inputs to five axes"),
    (lambda m: m.neuralNetwork.preprocessing.add(), "preprocesses images"),
    (lambda m: m.neuralNetwork.layers[0].input.append("q"), "reads 'q', which nothing before"),
    (lambda m: m.neuralNetwork.layers[0].input.append("x"), "has 2 inputs"),
    (lambda m: m.neuralNetwork.layers[0].ClearField("output"), "has no outputs"),
    (lambda m: m.neuralNetwork.layers[0].innerProduct.weights.floatValue.pop(),
     r"weights of shape \[3, 5\] have 15 elements, the file holds 14"),
    (lambda m: m.neuralNetwork.layers[0].innerProduct.weights.ClearField("floatValue"),
     "weights must have one form, not none"),
    (lambda m: m.neuralNetwork.layers[0].innerProduct.bias.ClearField("floatValue"), "one form"),
    (lambda m: setattr(m.neuralNetwork.layers[0].innerProduct, "int8DynamicQuantize", True),
     "int8DynamicQuantize"),
    (lambda m: m.neuralNetwork.layers[0].output.__setitem__(0, "x"), "'x' is already defined"),
    (lambda m: m.description.input[0].type.multiArrayType.shape.append(0), r"shape \(2, 5, 0\)"),
    (lambda m: m.description.input[0].type.multiArrayType.shape.extend([7, 7, 7]), "of rank 5"),
    (lambda m: m.description.input[0].type.multiArrayType.shape.pop(), "of rank 1"),
    (lambda m: setattr(m.description.input[0].type.multiArrayType, "dataType", 5), "data type 5"),
    (lambda m: m.description.input.append(m.description.input[0]), "two inputs are named 'x'"),
    (lambda m: setattr(m.description.output[0], "name", "q"), "'q' is made by no layer"),
    (_without_output, "has no outputs"),
    (_no_array, "input 'x' is no array"),
])  # fmt: skip
def test_damaged_networks(change, words, tmp_path):
    model = network()
    inner_product(model)
    change(model)
    if words == "input 'x' is no array":
        model.description.input[0].type.ClearField("multiArrayType")
    with pytest.raises((ModelError, UnsupportedOperatorError), match=words):
        imported(model, tmp_path)


def test_other_activations_and_paddings_are_refused(tmp_path):
    model = network()
    layer(model, "activation").PReLU.SetInParent()
    with pytest.raises(UnsupportedOperatorError, match="activation PReLU"):
        imported(model, tmp_path)
    model = network((1, 2, 8, 8))
    layer(model, "pooling", type=2).valid.SetInParent()
    with pytest.raises(UnsupportedOperatorError, match="pooling type 2"):
        imported(model, tmp_path)
    model = network((1, 2, 8, 8))
    layer(model, "pooling").includeLastPixel.SetInParent()
    with pytest.raises(UnsupportedOperatorError, match="padding other than valid and same"):
        imported(model, tmp_path)


def packed(numbers, bits):
    """Return integers packed with their highest bit first."""
    every = "".join(format(int(n), f"0{bits}b") for n in numbers)
    return np.packbits(np.array([int(c) for c in every], np.uint8)).tobytes()


@pytest.mark.parametrize("bits", [1, 3, 4, 8])
@pytest.mark.parametrize("is_table", [False, True])
def test_quantized_weights(bits, is_table):
    numbers = np.arange(12) * 7 % (1 << bits)
    stored = messages.message_class("Weights")(rawValue=packed(numbers, bits))
    stored.quantization.numberOfBits = bits
    if is_table:
        table = np.linspace(-1, 1, 1 << bits, dtype=np.float32)
        stored.quantization.lookupTableQuantization.floatValue.extend(table)
        expected = table[numbers].reshape(3, 4)
    else:
        stored.quantization.linearQuantization.scale.extend([0.5, 1, 2])
        stored.quantization.linearQuantization.bias.extend([0, 1, -1])
        expected = numbers.reshape(3, 4) * np.float32([[0.5], [1], [2]])
        expected += np.float32([[0], [1], [-1]])
    op = Emission("convolution", (TensorInfo("y", "float32", ()),))
    np.testing.assert_array_equal(network_weights.weights(op, stored, (3, 4)), expected)
    stored.rawValue = stored.rawValue[:-1]
    with pytest.raises(ModelError, match=f"12 weights of {bits} bits need"):
        network_weights.weights(op, stored, (3, 4))


def test_padding_same_and_negative_axes(tmp_path):
    model = network((1, 2, 8, 8))
    layer(model, "pooling", ("x",), ("p",), kernelSize=[2, 2], stride=[2, 2]).same.SetInParent()
    layer(model, "reduceMean", ("p",), ("r",), axes=[-1, -2], keepDims=True)
    layer(model, "multiply", ("r", "p"), ("y",))
    nodes = imported(model, tmp_path).nodes
    assert [node.op_type for node in nodes] == ["MaxPool", "ReduceMean", "Mul"]
    assert nodes[0].attributes["auto_pad"] == "SAME_UPPER"


def test_fields_that_nothing_reads_are_named_once(tmp_path):
    model = network()
    inner_product(model, rows=5)
    model.neuralNetwork.layers[0].isUpdatable = True
    model.description.metadata.SetInParent()
    model.neuralNetwork.layers[0].output[0] = "y"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imported(model, tmp_path)
    model.neuralNetwork.MergeFromString(b"\xf8\x3f\x01")  # field 1023, a number
    with pytest.warns(UnusedWarning, match=r"nothing reads the fields NeuralNetwork\.1023; res"):
        imported(model, tmp_path)


def test_every_field_of_a_layer_is_read_or_refused():
    refused = {
        "convolution": {"outputShape"},  # of deconvolutions
        "pooling": {"includeLastPixel"},
        "splitND": set(),
    }
    layers = messages.message_class("Layer").DESCRIPTOR.fields_by_name
    padding = inspect.getsource(network_layers._padding)
    for kind, (function, _) in network_layers.LAYERS.items():
        fields = {field.name for field in layers[kind].message_type.fields}
        source = inspect.getsource(function) + (padding if "valid" in fields else "")
        unread = {name for name in fields if f".{name}" not in source}
        if kind != "activation":  # one of its fields, whose name it compares
            assert unread == refused.get(kind, set()), (kind, unread)


def test_a_normalisation_without_epsilon_has_that_of_the_format(tmp_path):
    model = network((1, 2, 3, 4))
    layer(model, "mvn", outputs=("y",), normalizeVariance=True)
    nodes = imported(model, tmp_path).nodes
    assert [node.attributes["epsilon"] for node in nodes] == [pytest.approx(1e-6)]


def test_a_number_of_parts_that_contradicts_the_outputs_is_refused(tmp_path):
    model = network()
    layer(model, "splitND", outputs=("y", "z"), axis=1, numSplits=5)
    with pytest.raises(ModelError, match="2 outputs, but numSplits is 5"):
        imported(model, tmp_path)
