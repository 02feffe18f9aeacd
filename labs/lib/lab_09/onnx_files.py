"""ONNX files for reading by hand: ways to store a weight, plain nodes, faults for the checker.

Visited by lab 09.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from vklab.graph import onnx_file, onnx_import
from vklab.graph.graph import Graph
from vklab.graph.onnx_file import GRAPH, INITIALIZER
from vklab_labs.lab_09.dims import Shape
from vklab_labs.lab_09.onnx_bytes import parsed, stored

__all__ = ["FAULTS", "PlainNode", "bytes_in", "faults", "find_initializer", "in_folder",
           "open_batch", "open_image", "plain_graph", "three_weights", "verdict"]  # fmt: skip

PlainNode = tuple[str, str, list[str], list[str], dict[str, Any]]
# One model for each fault, in ONNX's own text form.
FAULTS = {
    "unknown operator": "g (float[N,4] x) => (float[N,4] y) { y = Relou(x) }",
    "two makers of y": "g (float[N,4] x) => (float[N,4] y) { y = Relu(x)  y = Tanh(x) }",
    "a is read first": "g (float[N,4] x) => (float[N,4] y) { y = Relu(a)  a = Relu(x) }",
    "a cycle": "g (float[N,4] x) => (float[N,4] y) { a = Add(x, b)  b = Relu(a)  y = Relu(b) }",
    "MatMul of 2x4 and 5x3":
        "g (float[2,4] x, float[5,3] w) => (float[2,3] y) { y = MatMul(x, w) }",
    "Add of float and int": "g (float[2,4] x, int64[2,4] w) => (float[2,4] y) { y = Add(x, w) }",
    "Conv of 3 channels by 2":
        "g (float[1,3,8,8] x, float[4,2,3,3] w) => (float[1,4,6,6] y) { y = Conv(x, w) }",
    "Reshape of 12 into 10":
        "g (float[2,6] x) => (float[1,10] y) <int64[2] t = {1, 10}> { y = Reshape(x, t) }",
}  # fmt: skip


def in_folder(file: str | Path) -> tempfile.TemporaryDirectory[str]:
    """Return a new folder with a copy of a file, as model.onnx; it goes when nobody uses it."""
    folder = tempfile.TemporaryDirectory(prefix="vklab-", ignore_cleanup_errors=True)
    shutil.copy(file, Path(folder.name, "model.onnx"))
    return folder


def bytes_in(folder: str | Path, location: str) -> int:
    """Return the size of a file by its path from a folder; ValueError if it is not in there."""
    path = Path(folder, location)
    if Path(location).is_absolute() or ".." in Path(location).parts or not path.is_file():
        raise ValueError(f"{location!r} is no file in the model's folder")
    return path.stat().st_size


def verdict(model: onnx.ModelProto, full_check: bool = False) -> str:
    """Return what ONNX's checker says of a model, in one word."""
    try:
        onnx.checker.check_model(model, full_check=full_check)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return "refused"
    return "accepted"


def faults() -> dict[str, onnx.ModelProto]:
    """Return a model for each fault, by the fault in words."""
    return {words: parsed(text) for words, text in FAULTS.items()}


def find_initializer(file: bytes, name: str) -> tuple[TensorProto, int, int]:
    """Return an initializer, and the places where its message begins and ends in the file."""
    graph = next(each for each in onnx_file.fields(file, 0, len(file)) if each[0] == GRAPH)
    for number, _, first, last in onnx_file.fields(file, *graph[2:]):
        if number == INITIALIZER:
            tensor = TensorProto.FromString(file[first:last])
            if tensor.name == name:
                return tensor, first, last
    raise LookupError(f"there is no initializer {name!r}")


def three_weights(folder: str | Path) -> Path:
    """Write a model with the weights large (2 MiB raw), small (raw) and typed; return its path."""
    model = parsed(
        "g (float[512,1024] x) => (float[512,1024] y) "
        "{ a = Add(x, large)  b = Add(a, small)  y = Add(b, typed) }"
    )
    large = np.arange(512 * 1024, dtype=np.float32).reshape(512, 1024)
    one = np.ones(1, np.float32)
    model.graph.initializer.extend(
        [stored("large", large, "raw"), stored("small", one, "raw"), stored("typed", one, "typed")]
    )
    path = Path(folder, "model.onnx")
    path.write_bytes(model.SerializeToString())
    return path


def open_batch(file: str | Path) -> onnx.ModelProto:
    """Return MiniClassifier with an open batch N, by three edits of its file for one image."""
    model = onnx.load(file)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    target = next(each for each in model.graph.initializer if each.name == "val_3")
    target.CopyFrom(numpy_helper.from_array(np.array([-1, 1024]), "val_3"))
    return model


def open_image(file: str | Path) -> onnx.ModelProto:
    """Return MiniClassifier with open batch, height and width: a promise that it cannot keep."""
    model = open_batch(file)
    for axis, letter in ((2, "H"), (3, "W")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = letter
    del model.graph.value_info[:]
    return model


def plain_graph(model: onnx.ModelProto) -> tuple[list[PlainNode], dict[str, Shape]]:
    """Return nodes as plain data, and the shapes of inputs and initializers.

    Attributes are those that the model file gives; a Reshape has its target among them.
    """
    graph: Graph = onnx_import.load_graph(model)
    shapes: dict[str, Shape] = {
        info.name: list(info.shape) for info in (*graph.inputs, *graph.initializers.values())
    }
    nodes: list[PlainNode] = []
    for node in graph.nodes:
        attributes = dict(node.attributes)
        reads = list(node.inputs)
        if node.op_type == "Reshape":
            target = graph.initializers[reads.pop()].constant
            attributes["target"] = [] if target is None else target.tolist()
        nodes.append((node.name, node.op_type, reads, list(node.outputs), attributes))
    return nodes, shapes
