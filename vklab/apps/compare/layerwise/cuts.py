"""Cuts of an ONNX model: every value as an output, each node alone, a few nodes alone.

Cut nodes are fed by arrays, so a model of cut nodes runs on any backend that runs ONNX. Values
that depend on no input are constants of the cut model, and so are integers such as shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

# Ends the name of a value that a separated node computes; the plain name is the value it is fed.
LOCAL = "/local"
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


@dataclass(frozen=True)
class Cut:
    """A model of a few nodes, and the values to feed it.

    Attributes:
        model: the model; its weights are those of the whole model.
        inputs: arrays by input name, with the dtypes that the model declares.
    """

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]


def layer_nodes(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes that compute floats from the model's inputs, in order.

    Args:
        model: the whole model.
        values: every value by name, as `oracle.Oracle.layers` has them.
    """
    fixed = constants(model)
    return [
        node
        for node in model.graph.node
        if any(_is_float(values, name) and name not in fixed for name in node.output)
    ]


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the names of the values that a node reads, those of its bodies included."""
    names = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            names |= dict.fromkeys(_free(body))
    return [*names]


def tapped(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model with the value of every layer as an output, after its own outputs.

    Taps keep a backend from fusing nodes, and so they move results: compare the outputs with those
    of the untapped model.

    Args:
        model: the whole model.
        values: every value by name.
    """
    open_model = _copy(model)
    kinds = _kinds(model)
    listed = {info.name for info in model.graph.output}
    for node in layer_nodes(model, values):
        for name in node.output:
            if name not in listed and _is_float(values, name):
                open_model.graph.output.append(_info(name, values[name], kinds))
    return open_model


def separated(
    model: onnx.ModelProto, values: Mapping[str, np.ndarray], only: Collection[str] = ()
) -> Cut:
    """Return a model in which each layer reads values that are fed, and none another layer's.

    The value of a layer is the output of the value's name with LOCAL at its end.

    Args:
        model: the whole model.
        values: every value by name; those that are fed should be such as the backend can hold.
        only: names of values whose layers alone are kept; empty for all.
    """
    nodes = []
    for node in layer_nodes(model, values):
        if only and not {*only} & {*node.output}:
            continue
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        alone.output[:] = [f"{name}{LOCAL}" if name else "" for name in node.output]
        nodes.append(alone)
    wanted = {
        f"{name}{LOCAL}": name
        for node in layer_nodes(model, values)
        for name in node.output
        if _is_float(values, name)
    }
    return _of_nodes(model, nodes, values, wanted)


def cut(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], values: Mapping[str, np.ndarray],
    outputs: Collection[str],
) -> Cut:  # fmt: skip
    """Return a model of some nodes, fed with the values that the others would have computed.

    Args:
        model: the whole model.
        nodes: the nodes to keep, in order.
        values: every value by name.
        outputs: names of the kept values that are outputs.
    """
    return _of_nodes(model, nodes, values, {name: name for name in outputs})


def _of_nodes(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], values: Mapping[str, np.ndarray],
    wanted: Mapping[str, str],
) -> Cut:  # fmt: skip
    """Return a model of nodes.

    Args:
        model: the whole model.
        nodes: the nodes.
        values: every value of the whole model by name.
        wanted: names of outputs, each with the name of its value in the whole model.
    """
    kinds, fixed = _kinds(model), constants(model)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    given = {info.name for info in model.graph.input} - weights.keys()
    made = {name for node in nodes for name in node.output}
    infos: dict[str, onnx.ValueInfoProto] = {}
    inputs: dict[str, np.ndarray] = {}
    stored: dict[str, onnx.TensorProto] = {}
    for name in dict.fromkeys(name for node in nodes for name in reads(node)):
        if name in made or name not in values:
            continue
        if name in weights:
            stored[name] = weights[name]
            continue
        array = _typed(name, values[name], kinds)
        if name in fixed or (name not in given and array.dtype.kind in "biu"):
            stored[name] = numpy_helper.from_array(array, name)
        else:
            infos[name], inputs[name] = _info(name, values[name], kinds), array
    outputs = [
        _info(name, values[origin], kinds, origin)
        for name, origin in wanted.items()
        if name in made
    ]
    graph = helper.make_graph(nodes, "cut", [*infos.values()], outputs, [*stored.values()])
    small = _copy(model)
    small.graph.CopyFrom(graph)
    return Cut(small, inputs)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def constants(model: onnx.ModelProto) -> set[str]:
    """Return the names of all values that depend on no input of the model."""
    fixed = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if all(name in fixed for name in reads(node)) and not node.op_type.startswith("Random"):
            fixed |= {name for name in node.output if name}
    return fixed


def _free(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a body reads from outside."""
    inner = {info.name for info in (*graph.input, *graph.initializer)}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in inner)
        inner |= {*node.output}
    yield from (info.name for info in graph.output if info.name not in inner)


def _is_float(values: Mapping[str, np.ndarray], name: str) -> bool:
    return name in values and values[name].dtype.kind == "f"


def _kinds(model: onnx.ModelProto) -> dict[str, int]:
    """Return the element type of every value that ONNX's shape inference knows."""
    try:
        inferred = shape_inference.infer_shapes(model).graph
    except Exception:  # onnx's C++ exceptions share no base class; 2 GiB are too much for it
        inferred = model.graph
    infos = (*model.graph.input, *inferred.value_info, *inferred.output, *model.graph.output)
    return {info.name: kind for info in infos if (kind := info.type.tensor_type.elem_type)}


def _kind(name: str, array: np.ndarray, kinds: Mapping[str, int]) -> int:
    """Return the element type of a value; a float of unknown type is a float32."""
    if array.dtype.kind == "f":
        kind = kinds.get(name, TensorProto.FLOAT)
        return kind if kind in FLOATS else TensorProto.FLOAT
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _typed(name: str, array: np.ndarray, kinds: Mapping[str, int]) -> np.ndarray:
    """Return an array in the dtype that the model gives the value."""
    return array.astype(helper.tensor_dtype_to_np_dtype(_kind(name, array, kinds)))


def _info(
    name: str, array: np.ndarray, kinds: Mapping[str, int], origin: str = ""
) -> onnx.ValueInfoProto:
    """Return the declaration of a value.

    Args:
        name: its name.
        array: its value.
        kinds: element types by name.
        origin: its name in the whole model, if that is another.
    """
    return helper.make_tensor_value_info(name, _kind(origin or name, array, kinds), array.shape)
