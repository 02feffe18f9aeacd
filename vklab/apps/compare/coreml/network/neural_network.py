"""Convert a Core ML NeuralNetwork to a Graph whose values keep their names. Pure; no coremltools.

A NeuralNetwork declares no types inside, so shapes are inferred layer by layer, at the default
shape of flexible inputs. All values are float32.

Source: NeuralNetwork.proto of coremltools 9
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vklab.apps.compare.coreml import emission, package
from vklab.apps.compare.coreml.emission import Emission
from vklab.apps.compare.coreml.network import network_layers
from vklab.apps.compare.coreml.package import Package
from vklab.apps.compare.coreml.values import ONNX_CODES
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph import graph as graphs
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

EXACT_SHAPES = 1
ARRAY_TYPES = {65552: "float16", 65568: "float32", 65600: "float64", 131104: "int32"}


def import_model(path: Path | str) -> Graph:
    """Return the Graph of an .mlmodel with a NeuralNetwork.

    Raises FileNotFoundError, ModelError for a damaged file, and UnsupportedOperatorError naming a
    layer type that vklab does not run.
    """
    opened = package.open_package(path)
    kind = opened.model.WhichOneof("kind")
    if kind != "neuralNetwork":
        raise UnsupportedOperatorError(
            f"{path} is a model of type {kind or 'unknown'}, no neuralNetwork"
        )
    return import_network(opened)


def import_network(opened: Package) -> Graph:
    """Return the Graph of an opened NeuralNetwork."""
    opened.warn_unused()
    network = opened.model.neuralNetwork
    if network.arrayInputShapeMapping != EXACT_SHAPES:
        raise UnsupportedOperatorError(
            f"{opened.path} maps inputs to five axes; vklab runs networks with exact input shapes"
        )
    if network.preprocessing:
        raise UnsupportedOperatorError(
            f"{opened.path} preprocesses images; vklab runs networks of arrays"
        )
    scope: dict[str, TensorInfo] = {}
    nodes: list[Node] = []
    constants: dict[str, TensorInfo] = {}
    inputs = []
    for feature in opened.model.description.input:
        info = _input(feature, str(opened.path))
        if info.name in scope:
            raise ModelError(f"{opened.path}: two inputs are named {info.name!r}")
        inputs.append(info)
        scope[info.name] = info
        if info.dtype != "float32":
            wide = f"{info.name}/float32"
            nodes.append(Node(wide, "Cast", (info.name,), (wide,), {"to": ONNX_CODES["float32"]}))
            scope[info.name] = TensorInfo(wide, "float32", info.shape)
    for number, layer in enumerate(network.layers):
        made = _layer(layer, number, scope)
        nodes += made.nodes
        constants |= made.constants
        for name, info in made.results.items():
            if name in scope:
                raise ModelError(f"{made.title}: value {name!r} is already defined")
            scope[name] = info
            if info.constant is not None:
                constants[name] = info
    return _graph(opened, nodes, inputs, constants, scope)


def _graph(
    opened: Package,
    nodes: list[Node],
    inputs: list[TensorInfo],
    constants: dict[str, TensorInfo],
    scope: dict[str, TensorInfo],
) -> Graph:
    outputs = tuple(feature.name for feature in opened.model.description.output)
    for name in outputs:
        if name not in scope:
            raise ModelError(f"{opened.path}: output {name!r} is made by no layer")
    if not outputs:
        raise ModelError(f"{opened.path} has no outputs")
    known = [info.name for info in inputs] + list(constants)
    ordered = graphs.topological_order(nodes, known)
    return Graph(
        opened.path.stem,
        emission.OPSET,
        ordered,
        tuple(inputs),
        outputs,
        constants,
        {info.name: info for info in (*inputs, *constants.values())},
        {"": emission.OPSET},
    )


def _input(feature: Any, path: str) -> TensorInfo:
    """Return the info of an input, at its default shape."""
    if not feature.type.HasField("multiArrayType"):
        raise UnsupportedOperatorError(
            f"{path}: input {feature.name!r} is no array; vklab runs networks of arrays"
        )
    array = feature.type.multiArrayType
    dtype = ARRAY_TYPES.get(array.dataType)
    if dtype is None:
        raise UnsupportedOperatorError(
            f"{path}: input {feature.name!r} has data type {array.dataType}"
        )
    shape = tuple(array.shape)
    if any(dim < 1 for dim in shape):
        raise ModelError(f"{path}: input {feature.name!r} has shape {shape}")
    return TensorInfo(feature.name, dtype, shape)


def _layer(layer: Any, number: int, scope: dict[str, TensorInfo]) -> Emission:
    """Return the emission of one layer, with inferred infos of its results."""
    kind = layer.WhichOneof("kind") or "unknown"
    where = f"layer {number} {layer.name!r} ({kind})"
    if not layer.output:
        raise ModelError(f"{where} has no outputs")
    for name in layer.input:
        if name not in scope:
            raise ModelError(f"{where} reads {name!r}, which nothing before it makes")
    inputs = [scope[name] for name in layer.input]
    made = Emission(kind, tuple(TensorInfo(name, "float32", ()) for name in layer.output))
    network_layers.emit(made, inputs, layer)
    if made.results:
        return made
    infos = {info.name: info for info in (*inputs, *made.constants.values())}
    computed = emission.shapes_of(made.nodes, infos, made.title)
    for info in made.outputs:
        if info.name not in computed:
            given = ", ".join(map(str, inputs))
            raise made.refusal(f"vklab has no kernel for it with inputs {given}")
        made.results[info.name] = computed[info.name]
    return made
