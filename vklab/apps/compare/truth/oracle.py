"""Truth of a model in float64: the torch module itself, else its ONNX graph widened.

Where both exist the module is the truth, and the distance of the graph is the row "export": an
exporter folds constants in float32. Values of layers come from the widened graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from vklab.apps.compare.models import inputs as graph_inputs
from vklab.apps.compare.torch import backend as torch
from vklab.base.endings import one_line
from vklab.errors import ModelError

# Opsets below which onnx.reference has another rule than ONNX: Softmax and its kin flatten all axes
# from `axis` on, and BatchNormalization with one output uses the given statistics.
FLAT_UNTIL, STATISTICS_UNTIL = 13, 14
MODULE = "torch module in float64"
GRAPH = "ONNX graph widened to float64"
EXPORT = "export"
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
# Attributes that name a dtype.
DTYPES = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision")
NARROW: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
                          "float32": np.float32}  # fmt: skip


def operators(model: onnx.ModelProto) -> list[Any]:
    """Return the classes that `ReferenceEvaluator` needs as `new_ops` for a model."""
    version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    flat: list[Any] = [Softmax, LogSoftmax, Hardmax] if version < FLAT_UNTIL else []
    return [*flat, BatchNormalization] if version < STATISTICS_UNTIL else []


class _Flat(OpRun):
    """An operator of rows: all axes from `axis` on are one."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
        rows = x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)
        return (self._of_rows(rows - rows.max(1, keepdims=True)).reshape(x.shape),)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the results of rows whose maximum is 0."""
        raise NotImplementedError


class Softmax(_Flat):
    """Softmax of opsets 1 to 12.

    Source: ONNX, "Softmax-11"
    """

    op_schema = onnx.defs.get_schema("Softmax", 11)  # its axis is 1 by default, not -1

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        powers = np.exp(rows)
        return powers / powers.sum(1, keepdims=True)


class LogSoftmax(_Flat):
    """LogSoftmax of opsets 1 to 12.

    Source: ONNX, "LogSoftmax-11"
    """

    op_schema = onnx.defs.get_schema("LogSoftmax", 11)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        return rows - np.log(np.exp(rows).sum(1, keepdims=True))


class Hardmax(_Flat):
    """Hardmax of opsets 1 to 12.

    Source: ONNX, "Hardmax-11"
    """

    op_schema = onnx.defs.get_schema("Hardmax", 11)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        ones = np.zeros_like(rows)
        ones[np.arange(len(rows)), rows.argmax(1)] = 1
        return ones


class BatchNormalization(OpRun):
    """BatchNormalization of opsets 1 to 13, for inference.

    Source: ONNX, "BatchNormalization-9"
    """

    op_domain = ""
    op_schema = onnx.defs.get_schema("BatchNormalization", 9)

    def _run(self, x: np.ndarray, *rest: np.ndarray, epsilon: float = 1e-5, **unused: Any
             ) -> tuple[np.ndarray]:  # fmt: skip
        shape = (-1, *(1,) * (x.ndim - 2))
        scale, bias, mean, variance = (array.reshape(shape) for array in rest)
        return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias,)


@dataclass(frozen=True)
class Oracle:
    """Truth for one set of inputs.

    Attributes:
        kind: MODULE or GRAPH.
        outputs: true outputs by name, in the model's order.
        layers: every value of the widened graph by ONNX name, the graph's inputs among them.
        exported: outputs of the widened graph, for the row "export"; empty if they are the truth.
        modules: values of the module's layers in float64 by fx name; empty without a module.
        notes: sentences on what could not be computed.
    """

    kind: str
    outputs: dict[str, np.ndarray]
    layers: dict[str, np.ndarray] = field(default_factory=dict)
    exported: dict[str, np.ndarray] = field(default_factory=dict)
    modules: dict[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_fx() -> ModuleType:
    """Import the module that runs torch, or raise SetupError with the command that installs it."""
    return torch.load("fx")


def of_graph(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Oracle:
    """Return the truth of an ONNX model, whose external data is loaded, by its widened graph."""
    values = evaluate(widen(model), inputs)
    return Oracle(GRAPH, {info.name: values[info.name] for info in model.graph.output}, values)


def of_module(module: Any, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Oracle:
    """Return the truth of a torch module, whose outputs get the names of its exported model.

    Args:
        module: a torch.nn.Module in eval mode; it is not changed.
        model: the exported model, with inputs and outputs in the module's order.
        inputs: arrays by the model's input names.
    """
    args = [inputs[name] for name in graph_inputs.names(model)]
    names = [info.name for info in model.graph.output]
    fx = load_fx()
    made = fx.outputs(module, args)
    if len(made) != len(names):
        raise ModelError(
            f"the module returns {len(made)} tensors, its exported model has {len(names)} outputs"
        )
    graph, values, notes = Oracle(GRAPH, {}), {}, []
    try:
        graph = of_graph(model, inputs)
    except ModelError as error:
        notes.append(f"no row {EXPORT!r} and no layers: {error}")
    try:
        values = fx.values(module, args)
    except ModelError as error:
        notes.append(f"no layers of the module: {error}")
    outputs = dict(zip(names, made, strict=True))
    return Oracle(MODULE, outputs, graph.layers, graph.outputs, values, tuple(notes))


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return an array whose numbers a dtype can hold, as float64; what is too large is clipped.

    Integers are returned as they are, and so is every array for "float64", "tfloat32" and "int8",
    which do not store values as narrower floats.
    """
    if array.dtype.kind != "f" or dtype not in NARROW:
        return array
    narrow = NARROW[dtype]
    largest = float(ml_dtypes.finfo(narrow).max)
    clipped = np.clip(array, -largest, largest)
    return np.where(np.isinf(array), array, clipped).astype(narrow).astype(np.float64)


def stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return what a dtype stores of a computed array: what is too large becomes infinite.

    A backend may return as float32 what it stores as float16 between two layers.
    """
    if array.dtype.kind != "f" or dtype not in NARROW or array.dtype == NARROW[dtype]:
        return array
    with np.errstate(over="ignore"):
        kept: np.ndarray = array.astype(NARROW[dtype])
    return kept


def evaluate(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return every value of a widened model by name; ModelError for what has no reference."""
    fed = {
        name: array.astype(np.float64) if array.dtype.kind in "fV" else array
        for name, array in ((name, np.asarray(given)) for name, given in inputs.items())
    }
    try:
        with np.errstate(all="ignore"):
            runner = ReferenceEvaluator(model, new_ops=operators(model))
            values: Any = runner.run(None, fed, intermediate=True)
    except Exception as error:  # onnx.reference raises errors of any class
        raise ModelError(
            f"there is no float64 oracle: onnx.reference cannot compute this model "
            f"({type(error).__name__}: {one_line(error)})"
        ) from error
    return {
        name: np.asarray(value)
        for name, value in values.items()
        if name and isinstance(value, (np.ndarray, np.generic))
    }


def widen(model: onnx.ModelProto, weights: str = "float64") -> onnx.ModelProto:
    """Return a model whose floats are all float64, for `evaluate`.

    Args:
        model: the model, which is not changed.
        weights: a narrower dtype to which every initializer is rounded first.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for graph in _graphs(wide.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            kind = info.type.tensor_type
            if kind.elem_type in FLOATS:
                kind.elem_type = TensorProto.DOUBLE
        for tensor in graph.initializer:
            _widen_tensor(tensor, weights)
        for node in graph.node:
            _widen_node(node, weights)
    for function in wide.functions:
        del function.value_info[:]
        for node in function.node:
            _widen_node(node, weights)
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    for graph in _graphs(body):
                        for inner in graph.node:
                            _widen_node(inner, weights)
    return wide


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies of its nodes, at any depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node or body.output:
                    yield from _graphs(body)


def _widen_node(node: onnx.NodeProto, weights: str) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen_tensor(attribute.t, weights if node.op_type == "Constant" else "float64")
        elif attribute.name in DTYPES and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            one = attribute.name == "value_float"
            array = np.asarray(attribute.f if one else list(attribute.floats), np.float64)
            tensor = numpy_helper.from_array(rounded(array, weights))
            attribute.CopyFrom(helper.make_attribute("value", tensor))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1, np.float64))  # ONNX's default is a float32
        node.attribute.append(helper.make_attribute("value", zero))


def _widen_tensor(tensor: onnx.TensorProto, weights: str) -> None:
    if tensor.data_type in FLOATS:
        array = np.asarray(numpy_helper.to_array(tensor)).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(rounded(array, weights), tensor.name))
