"""Convert ONNX files, bytes and protos to Graphs, and report malformed models as ModelErrors.

Computes nothing and infers no shapes (`shapes`). Visited by lab 09.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import helper, version_converter

from vklab.base import catalogue
from vklab.base.names import SEPARATOR
from vklab.errors import ModelError, UnusedWarning
from vklab.graph import onnx_file, onnx_tensors, schemas
from vklab.graph.graph import Graph, Node, topological_order, without_unread_outputs
from vklab.types import ANY_SHAPE, TensorInfo

OLDEST_OPSET = 7
# What exporters write for a dimension that they do not know: two of them may differ.
_UNNAMED = re.compile(r"|\?|\*|-1|[Nn]one|unk(nown)?(__\d+)?")
_ABOUT = {"name", "type", "doc_string", "ref_attr_name"}  # fields that hold no value
Model = str | os.PathLike[str] | bytes | onnx.ModelProto | Graph


def load_graph(model: Model) -> Graph:
    """Return the Graph of an ONNX model given as a path, bytes or a ModelProto; or a given Graph.

    Large weights of a file are mapped, not read: do not move or change the file while in use.

    Raises ModelError for a malformed model and FileNotFoundError for a missing file.
    """
    if not isinstance(model, (str, os.PathLike)):
        return model if isinstance(model, Graph) else from_proto(*load_proto(model))
    path = _file(model)
    return from_proto(_parse(onnx_file.read(path), str(model)), path.parent)


def load_proto(model: Model) -> tuple[onnx.ModelProto, Path | None]:
    """Return a parsed model and the folder of its external data (None unless it is a file)."""
    if isinstance(model, (bytes, onnx.ModelProto)):
        return _parse(model, f"the given {type(model).__name__}"), None
    if not isinstance(model, (str, os.PathLike)):
        raise ModelError(f"a model is a path, bytes or a ModelProto, not {type(model).__name__}")
    path = _file(model)
    return _parse(path.read_bytes(), str(model)), path.parent


def _file(model: str | os.PathLike[str]) -> Path:
    path = Path(model)
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}")
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not an ONNX file")
    return path.resolve()


def _parse(model: bytes | onnx.ModelProto, label: str) -> onnx.ModelProto:
    try:
        if isinstance(model, bytes):
            onnx_file.require_parsable(len(model), label, model)
        proto = onnx.ModelProto.FromString(model) if isinstance(model, bytes) else model
    except DecodeError as error:
        problem = f"no ONNX model, or one that is cut off: {error}"
        raise onnx_file.no_onnx(label, model, problem) from error
    # Nearly any bytes parse as protobuf; a model also has a version and a graph with outputs.
    if not proto.ir_version or not proto.graph.output:
        problem = "no ONNX model, as it has no IR version or no graph outputs"
        raise onnx_file.no_onnx(label, model, problem)
    return proto


def from_proto(proto: onnx.ModelProto, folder: Path | None = None) -> Graph:
    """Return the Graph of a parsed model; external data is read from files in `folder`."""
    proto = prepare(proto)
    made = from_graph(proto.graph, _opsets(proto), folder)
    if any(SEPARATOR in name for name in made.names()):
        escaped = catalogue.step("escape names")(proto.graph, made)
        made = from_graph(escaped, _opsets(proto), folder)
    return made


def prepare(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model converted to a supported opset, with its functions inlined."""
    proto = _upgrade(proto)
    if proto.ir_version > onnx.IR_VERSION:
        UnusedWarning.issue(
            f"the model has IR version {proto.ir_version}; onnx {onnx.__version__} "
            f"reads up to {onnx.IR_VERSION}, and nothing that is newer in the file"
        )
    if proto.functions:
        proto = catalogue.step("inline functions")(proto)
    return proto


def from_graph(
    graph: onnx.GraphProto,
    opsets: Mapping[str, int],
    folder: Path | None = None,
    outer: frozenset[str] | None = None,
) -> Graph:
    """Return the Graph of a GraphProto, which may be the body of an If, Loop or Scan.

    Args:
        graph: the graph as ONNX stores it.
        opsets: version of each domain.
        folder: the folder of external data; None for a model that has no folder.
        outer: values visible around a body, of which those it reads become `captures`; None for
            a main graph.
    """
    initializers: dict[str, TensorInfo] = {}
    given: list[Any] = [(each, each.name, onnx_tensors.array) for each in graph.initializer]
    given += [(each, each.values.name, onnx_tensors.sparse) for each in graph.sparse_initializer]
    for each, name, read in given:
        if not isinstance(name, str):
            raise ModelError(f"initializer {name!r}: its name is not text")
        if name in initializers:
            raise ModelError(f"initializer {name!r} is defined twice")
        initializers[name] = onnx_tensors.info(name, read(each, f"initializer {name!r}", folder))
    for value in (*graph.input, *graph.output):
        if not isinstance(value.name, str):
            raise ModelError(f"graph {graph.name!r}: {value.name!r} is not text")
    # An initializer among the inputs is a default. Before IR version 4 all were listed there.
    listed = [value_info(v, outer is None and v.name not in initializers) for v in graph.input]
    inputs = tuple(info for info in listed if info.name not in initializers)
    outer = outer or frozenset()
    if len({info.name for info in inputs}) < len(inputs):
        raise ModelError(f"graph {graph.name!r} has two inputs of one name")
    taken = {info.name for info in inputs} | set(initializers)
    nodes, constants = _nodes(graph, folder, opsets, outer | taken)
    for name in constants:
        if name in taken:
            raise ModelError(f"a Constant makes {name!r}, which is already defined elsewhere")
    initializers |= constants
    known = [info.name for info in inputs] + list(initializers)
    made = set(known) | {name for node in nodes for name in node.outputs}
    outputs = tuple(value.name for value in graph.output)
    read = dict.fromkeys([*(name for node in nodes for name in node.reads), *outputs])
    captures = tuple(name for name in read if name not in made and name in outer)
    ordered = topological_order(nodes, [*known, *captures])
    for name in outputs:
        if name not in made and name not in outer:
            raise ModelError(f"graph output {name!r} is made by no node")
    told = (
        TensorInfo(v.name, onnx_tensors.dtype_name(kind, f"graph output {v.name!r}"), ANY_SHAPE)
        for v in graph.output
        if (kind := v.type.tensor_type.elem_type)
    )
    return Graph(
        name=graph.name,
        opset=opsets.get("", 1),
        opsets=opsets,
        nodes=without_unread_outputs(ordered, outputs),
        inputs=inputs,
        outputs=outputs,
        initializers=initializers,
        captures=captures,
        defaults=tuple(info for info in listed if info.name in initializers and info.dtype),
        infos={info.name: info for info in (*told, *inputs, *initializers.values())},
    )


def _upgrade(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with an opset of at least OLDEST_OPSET, by onnx's own converter."""
    versions = [e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")]
    if not versions or not 1 <= versions[0] < OLDEST_OPSET:
        return proto
    try:
        return version_converter.convert_version(proto, OLDEST_OPSET)
    except Exception as error:  # onnx's C++ exceptions share no base class
        raise ModelError(
            f"the model uses opset {versions[0]}; {OLDEST_OPSET} and up are supported, and onnx "
            f"cannot convert it: {error}"
        ) from error


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    # "ai.onnx" is another name of the default domain "".
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"the model imports opsets {opsets[domain]} and {entry.version} of "
                f"one domain, {domain!r}"
            )
    version = opsets.get("")
    newest = onnx.defs.onnx_opset_version()
    if version is None and any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        raise ModelError("the model imports no opset of ONNX's operators; the file may be cut off")
    if version is not None and not OLDEST_OPSET <= version <= newest:
        raise ModelError(
            f"the model uses opset {version}; {OLDEST_OPSET} to {newest} are supported. "
            + ("Update onnx and vklab." if version > newest else "Export it again, or convert it.")
        )
    return opsets


def _nodes(
    graph: onnx.GraphProto,
    folder: Path | None,
    opsets: Mapping[str, int],
    visible: frozenset[str],
) -> tuple[list[Node], dict[str, TensorInfo]]:
    nodes: list[Node] = []
    constants: dict[str, TensorInfo] = {}
    names: set[str] = set()
    visible |= {name for proto in graph.node for name in proto.output}
    for number, proto in enumerate(graph.node):
        name = str(proto.name) or f"{proto.op_type}_{number}"
        while name in names:  # ONNX requires unique names, but not every exporter writes them
            name = f"{name}#{number}"
        names.add(name)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        schemas.check(proto, name, opsets.get(domain, 0))
        if proto.op_type == "Constant" and not domain and len(proto.output) == 1:
            output = proto.output[0]
            if output in constants:
                raise ModelError(f"node {name!r}: value {output!r} is already defined elsewhere")
            constants[output] = _constant(proto, name, folder)
            continue
        attributes, bodies = {}, {}
        for item in proto.attribute:
            if item.type == onnx.AttributeProto.GRAPH:
                bodies[item.name] = from_graph(item.g, opsets, folder, visible)
            attributes[item.name] = _attribute(item, name, folder)
        nodes.append(
            Node(
                name,
                proto.op_type,
                tuple(proto.input),
                tuple(proto.output),
                attributes,
                domain,
                bodies=bodies,
            )
        )
    return nodes, constants


def _constant(proto: onnx.NodeProto, name: str, folder: Path | None) -> TensorInfo:
    if len(proto.attribute) != 1:
        raise ModelError(f"node {name!r}: a Constant has one attribute, not {len(proto.attribute)}")
    item = proto.attribute[0]
    if item.type == onnx.AttributeProto.SPARSE_TENSOR:
        value = onnx_tensors.sparse(item.sparse_tensor, f"node {name!r}", folder)
    else:
        dtypes = {"float": np.float32, "int": np.int64, "string": object}
        dtype = dtypes.get(item.name.removeprefix("value_").removesuffix("s"))
        value = np.asarray(_attribute(item, name, folder), dtype)
    return onnx_tensors.info(proto.output[0], value)


def _attribute(item: onnx.AttributeProto, node: str, folder: Path | None) -> Any:
    values = {entry.name for entry, _ in item.ListFields()} - _ABOUT
    if len(values) > 1:
        raise ModelError(
            f"node {node!r}, attribute {item.name!r} has several values: "
            f"{', '.join(sorted(values))}"
        )
    if item.type == onnx.AttributeProto.TENSOR:
        return onnx_tensors.array(item.t, f"node {node!r}, attribute {item.name!r}", folder)
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


def value_info(value: onnx.ValueInfoProto, is_typed: bool) -> TensorInfo:
    """Return name, dtype and shape of a declared value; open dimensions are names."""
    kind = value.type.WhichOneof("value")
    if kind is None and is_typed:
        raise ModelError(f"graph input {value.name!r} has no type")
    if kind != "tensor_type":  # inputs of bodies often have no type
        return TensorInfo(value.name, (kind or "").removesuffix("_type"), ANY_SHAPE)
    tensor = value.type.tensor_type
    dtype = onnx_tensors.dtype_name(tensor.elem_type, f"graph input {value.name!r}")
    if not tensor.HasField("shape"):
        return TensorInfo(value.name, dtype, ANY_SHAPE)
    dims = enumerate(tensor.shape.dim)
    return TensorInfo(value.name, dtype, tuple(_size(dim, f"{value.name}.{n}") for n, dim in dims))


def _size(dim: Any, label: str) -> int | str:
    """Return a dimension's number or name; `label` where the file tells neither."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return label if _UNNAMED.fullmatch(str(dim.dim_param)) else str(dim.dim_param)
