"""ONNX files, bytes and protos -> Graph, with every way a file can be wrong said clearly.

Nothing is computed and no shape is inferred; weights stay where onnx put them (mapped from the
file if external). Visited by lab 09.
"""

from __future__ import annotations

import graphlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, helper, numpy_helper

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph.graph import Graph, Node, topological_order, without_unread_outputs
from vklab.types import Shape, TensorInfo

__all__ = ["from_proto", "load_graph", "load_proto"]

OLDEST_OPSET = 7
Model = str | os.PathLike[str] | bytes | onnx.ModelProto


def load_graph(model: Model) -> Graph:
    """Read an ONNX model from a path, bytes or a ModelProto.

    Raises ModelError for what is not a model, and FileNotFoundError for a path that is not there.
    """
    proto, folder = load_proto(model)
    return from_proto(proto, folder)


def load_proto(model: Model) -> tuple[onnx.ModelProto, Path | None]:
    """Return the parsed model and the folder its external data may lie in."""
    if isinstance(model, onnx.ModelProto):
        return model, None
    if isinstance(model, bytes):
        return _parse(model, "the given bytes"), None
    if not isinstance(model, (str, os.PathLike)):
        raise ModelError(
            f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}"
        )
    path = Path(model)
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}")
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not an ONNX file")
    return _parse(path.read_bytes(), str(path)), path.resolve().parent


def _parse(data: bytes, label: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{label} is not an ONNX model, or is cut off: {error}") from error
    # Nearly any bytes are some protobuf: a model has a version and a graph with outputs.
    if not proto.ir_version or not proto.graph.output:
        raise ModelError(f"{label} is not an ONNX model: it has no IR version or no graph outputs")
    return proto


def from_proto(proto: onnx.ModelProto, folder: Path | None = None) -> Graph:
    """Turn a parsed model into a Graph; external data is looked for below `folder`."""
    if proto.functions:
        proto = _inline(proto)
    graph = proto.graph
    opsets = _opsets(proto)
    initializers: dict[str, TensorInfo] = {}
    for tensor in graph.initializer:
        if tensor.name in initializers:
            raise ModelError(f"initializer {tensor.name!r} is defined twice")
        initializers[tensor.name] = _initializer(tensor, folder)
    if graph.sparse_initializer:
        raise UnsupportedOperatorError(f"graph {graph.name!r} has sparse initializers")
    # Before IR version 4 initializers were listed among the inputs as well.
    inputs = tuple(_value(v) for v in graph.input if v.name not in initializers)
    if len({info.name for info in inputs}) < len(inputs):
        raise ModelError(f"graph {graph.name!r} has two inputs of one name")
    nodes, constants = _nodes(graph, folder)
    for name in constants:
        if name in initializers or any(info.name == name for info in inputs):
            raise ModelError(f"a Constant makes {name!r}, which is already defined elsewhere")
    initializers |= constants
    known = [info.name for info in inputs] + list(initializers)
    ordered = topological_order(nodes, known)
    outputs = tuple(value.name for value in graph.output)
    made = set(known) | {name for node in ordered for name in node.outputs}
    for name in outputs:
        if name not in made:
            raise ModelError(f"graph output {name!r} is made by no node")
    return Graph(
        name=graph.name,
        opset=opsets.get("", 1),
        opsets=opsets,
        nodes=without_unread_outputs(ordered, outputs),
        inputs=inputs,
        outputs=outputs,
        initializers=initializers,
        infos={info.name: info for info in (*inputs, *initializers.values())},
    )


def _inline(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the bodies of its functions in place of their calls."""
    from onnx import inliner

    calls = {
        (f.domain, f.name): [(node.domain, node.op_type) for node in f.node]
        for f in proto.functions
    }
    if len(calls) < len(proto.functions):
        raise ModelError("two functions of the model have one name")
    # The inliner would follow a function that calls itself until the stack ends.
    try:
        order = graphlib.TopologicalSorter(calls)
        order.prepare()
    except graphlib.CycleError as error:
        names = " -> ".join(name for _, name in error.args[1])
        raise ModelError(f"the functions {names} call each other in a circle") from error
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # it raises what its C++ throws
        raise ModelError(f"the model's functions cannot be put in place: {error}") from error


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    # "ai.onnx" is another way to write the default domain.
    opsets = {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version
        for entry in proto.opset_import
    }
    version = opsets.get("")
    newest = onnx.defs.onnx_opset_version()
    if version is None and any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        raise ModelError("the model names no opset for ONNX's operators; the file may be cut off")
    if version is not None and not OLDEST_OPSET <= version <= newest:
        raise ModelError(
            f"the model uses opset {version}; {OLDEST_OPSET} to {newest} are known. "
            + ("Update onnx and vklab." if version > newest else "Export it again, or convert it.")
        )
    return opsets


def _nodes(
    graph: onnx.GraphProto, folder: Path | None
) -> tuple[list[Node], dict[str, TensorInfo]]:
    nodes: list[Node] = []
    constants: dict[str, TensorInfo] = {}
    for number, proto in enumerate(graph.node):
        name = proto.name or f"{proto.op_type}_{number}"
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if proto.op_type == "Constant" and not domain and len(proto.output) == 1:
            output = proto.output[0]
            if output in constants:
                raise ModelError(f"node {name!r}: value {output!r} is already defined elsewhere")
            constants[output] = _constant(proto, name, folder)
            continue
        attributes = {item.name: _attribute(item, name, folder) for item in proto.attribute}
        nodes.append(
            Node(name, proto.op_type, tuple(proto.input), tuple(proto.output), attributes, domain)
        )
    return nodes, constants


def _constant(proto: onnx.NodeProto, name: str, folder: Path | None) -> TensorInfo:
    if len(proto.attribute) != 1:
        raise ModelError(f"node {name!r}: a Constant has one attribute, not {len(proto.attribute)}")
    item = proto.attribute[0]
    types = onnx.AttributeProto
    kinds = {"value": (types.TENSOR, None), "value_float": (types.FLOAT, np.float32),
             "value_floats": (types.FLOATS, np.float32), "value_int": (types.INT, np.int64),
             "value_ints": (types.INTS, np.int64)}  # fmt: skip
    if item.name not in kinds:
        raise UnsupportedOperatorError(f"node {name!r}: Constant.{item.name} is not supported")
    kind, dtype = kinds[item.name]
    if item.type != kind:
        raise ModelError(f"node {name!r}: Constant.{item.name} is of attribute type {item.type}, "
                         f"not {kind}")  # fmt: skip
    value = np.asarray(_attribute(item, name, folder), dtype)
    return TensorInfo(proto.output[0], str(value.dtype), value.shape, value)


def _attribute(item: onnx.AttributeProto, node: str, folder: Path | None) -> Any:
    if item.type == onnx.AttributeProto.TENSOR:
        return _array(item.t, f"node {node!r}, attribute {item.name!r}", folder)
    try:
        value = helper.get_attribute_value(item)
    except ValueError as error:
        raise ModelError(f"node {node!r}, attribute {item.name!r}: {error}") from error
    if value is None:
        raise ModelError(f"node {node!r}, attribute {item.name!r} has no type")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (str, int, float, Message)):
        return value
    return tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value)


def _value(value: onnx.ValueInfoProto) -> TensorInfo:
    kind = value.type.WhichOneof("value")
    if kind is None:
        raise ModelError(f"graph input {value.name!r} has no type")
    if kind != "tensor_type":
        raise UnsupportedOperatorError(f"graph input {value.name!r} is a {kind}, not a tensor")
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise ModelError(f"graph input {value.name!r} has no shape; export it with one")
    shape: list[int | str] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise ModelError(f"graph input {value.name!r}: dimension {dim.dim_value} < 0")
            shape.append(dim.dim_value)
        else:
            shape.append(dim.dim_param or f"{value.name}.{axis}")
    return TensorInfo(value.name, _dtype(tensor.elem_type, f"graph input {value.name!r}"),
                      tuple(shape))  # fmt: skip


def _dtype(element_type: int, owner: str) -> str:
    if element_type == TensorProto.STRING:
        raise UnsupportedOperatorError(f"{owner} holds strings; tensors of numbers are supported")
    try:
        return str(helper.tensor_dtype_to_np_dtype(element_type))
    except KeyError as error:
        raise ModelError(f"{owner} has unknown element type {element_type}") from error


def _initializer(tensor: TensorProto, folder: Path | None) -> TensorInfo:
    array = _array(tensor, f"initializer {tensor.name!r}", folder)
    shape: Shape = array.shape
    return TensorInfo(tensor.name, str(array.dtype), shape, array)


def _array(tensor: TensorProto, owner: str, folder: Path | None) -> np.ndarray:
    dims = tuple(tensor.dims)
    dtype = np.dtype(_dtype(tensor.data_type, owner))
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{owner} has a negative dimension: {dims}")
    wanted = math.prod(dims) * dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, owner, folder, dtype, dims, wanted)
    # Small types are packed two to a byte: to_array checks those itself.
    packed = tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)
    if tensor.HasField("raw_data") and not packed and len(tensor.raw_data) != wanted:
        raise ModelError(f"{owner} of shape {dims} needs {wanted} bytes, the file holds "
                         f"{len(tensor.raw_data)}")  # fmt: skip
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{owner} of shape {dims}: {error}") from error


def _external(
    tensor: TensorProto,
    owner: str,
    folder: Path | None,
    dtype: np.dtype,
    dims: tuple[int, ...],
    wanted: int,
) -> np.ndarray:
    entries: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(f"{owner} lies in the file {location!r}; load the model by its path")
    if "\0" in location:
        raise ModelError(f"{owner}: external data {location!r} is no file name")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
        raise ModelError(f"{owner}: external data {location!r} leaves the model's folder")
    if not path.is_file():
        raise ModelError(f"{owner}: external data file {location!r} is missing in {folder}")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", wanted))
    except ValueError as error:
        raise ModelError(f"{owner}: external data {dict(entries)}: {error}") from error
    if length != wanted or offset < 0 or offset + length > path.stat().st_size:
        raise ModelError(
            f"{owner} of shape {dims} needs {wanted} bytes, {location!r} is said to hold {length} "
            f"at {offset} and has {path.stat().st_size}"
        )
    if wanted == 0:
        return np.zeros(dims, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=dims)
