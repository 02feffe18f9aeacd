"""ONNX Runtime on the CPU: the reference for comparisons, and the runtime of host chunks.

A node that ONNX Runtime does not support runs in `onnx.reference`. The only module that imports
onnxruntime. Visited by lab 17.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from vklab import forking, settings
from vklab.errors import ModelError, SetupError
from vklab.graph import functions, operator_cache
from vklab.graph.graph import Graph, Node
from vklab.ops.dtypes import ELEMENT_TYPES, INTEGERS
from vklab.runtime import declared, host_values
from vklab.runtime.typed_session import TypedSession
from vklab.types import ANY_SHAPE, TensorInfo

__all__ = ["HostChunk", "Reference", "evaluate", "load_onnxruntime", "to_proto"]

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


def load_onnxruntime() -> ModuleType:
    """Import onnxruntime, or raise SetupError with the command that installs it."""
    # Its telemetry sends usage data, and its thread blocks the end of a forked child.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise SetupError(f"onnxruntime cannot be imported ({error})",
                         "pip install onnxruntime") from error  # fmt: skip
    return onnxruntime


_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def _open_session(proto: onnx.ModelProto, options: Any) -> TypedSession:
    """Return an InferenceSession on the CPU, as a `TypedSession`."""
    runtime = load_onnxruntime()
    session = runtime.InferenceSession(
        host_values.expanded(_readable(proto)).SerializeToString(), options,
        providers=["CPUExecutionProvider"]
    )
    _sessions.add(session)
    return TypedSession(session, runtime)


def _keep_inherited() -> None:
    """Keep a child from ending inherited sessions: that waits for threads of the parent."""
    for session in list(_sessions):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


forking.in_child(_keep_inherited)


class Reference:
    """A model in ONNX Runtime on the CPU, without optimisations that change results."""

    def __init__(self, proto: onnx.ModelProto, folder: Path | None = None) -> None:
        runtime = load_onnxruntime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        # Extended fusions change rounding; in quantized models by a whole quantization step.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        if folder is not None:
            options.add_session_config_entry(_EXTERNAL_FOLDER, str(folder))
        try:
            self._session = _open_session(proto, options)
        except Exception as error:  # ONNX Runtime's exceptions share no other base class
            raise ModelError(f"ONNX Runtime cannot load the model: {error}") from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        names = self._session.outputs
        return dict(zip(names, self._session.run(names, inputs), strict=True))


def _readable(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model with the oldest IR version that its opsets allow.

    The onnx package writes newer IR versions than ONNX Runtime reads; their additions are unused.
    """
    oldest = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    readable = onnx.ModelProto()
    readable.CopyFrom(proto)
    readable.ir_version = min(proto.ir_version or 8, max(oldest, 8))
    return readable


# Largest values of attributes that ONNX Runtime turns into time or memory without asking.
_MOST = {("TfIdfVectorizer", "max_skip_count"): 1 << 16,
         ("TfIdfVectorizer", "ngram_indexes"): 1 << 28}  # fmt: skip


def _require_bounded(graph: Graph) -> None:
    """Raise ModelError for a node that would take hours or all memory, and could not be stopped."""
    for node in graph.nodes:
        for (op_type, name), most in _MOST.items():
            given = node.attributes.get(name, 0) if node.op_type == op_type else 0
            if np.max(given, initial=0) > most:
                raise ModelError(f"node {node.name!r} ({op_type}): {name} reaches "
                                 f"{np.max(given)}; the host runs it up to {most}")  # fmt: skip


class HostChunk:
    """A chunk of host nodes: run in ONNX Runtime, or in onnx.reference if that fails.

    Raises ModelError for a node whose attributes ask for hours or for all memory.
    """

    def __init__(self, graph: Graph, is_short: bool = False) -> None:
        _require_bounded(graph)
        self.graph = graph
        self.runner = ""
        self._is_short = is_short  # for a single run: no threads and no arena, they cost the most
        self._fast: TypedSession | None = None
        self._slow: ReferenceEvaluator | None = None
        self._types: tuple[Any, Mapping[str, onnx.TypeProto]] | None = None

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of the chunk by name.

        Raises ModelError naming nodes that fail, SetupError if one needs a package that is missing.
        """
        return declared.require(self.graph, self._run(values))

    def _run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        fed = {info.name: values[info.name] for info in self.graph.inputs}
        names = list(self.graph.outputs)
        reason: Exception | str = "it was not tried"
        try:
            differs = host_values.differs(self.graph.nodes)
            if self._slow is None and not differs and not _may_trap(self.graph):
                return dict(zip(names, self._run_fast(names, fed), strict=True))
        except Exception as error:  # ONNX Runtime's exceptions share no base: try onnx.reference
            self._fast, reason = None, error
        try:
            if self._slow is None:
                self._slow = ReferenceEvaluator(self._model(fed, typed=False))
                self.runner = "onnx.reference"
            with np.errstate(all="ignore"):
                outputs = self._slow.run(names, fed)
        except Exception as error:
            nodes = ", ".join(str(node) for node in self.graph.nodes[:3])
            if isinstance(error, ImportError):  # ImageDecoder alone needs a package: Pillow
                raise SetupError(f"the host cannot run {nodes}: {error}",
                                 "pip install 'vklab[images]'") from error  # fmt: skip
            raise ModelError(f"the host cannot run {nodes}: ONNX Runtime: {reason}; "
                             f"onnx.reference: {error}") from error  # fmt: skip
        return self._as_inferred(fed, dict(zip(names, outputs, strict=True)))

    def _as_inferred(self, fed: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of onnx.reference as what ONNX infers for these inputs."""
        sizes = tuple((array.dtype, array.shape) if isinstance(array, np.ndarray) else None
                      for array in fed.values())  # fmt: skip
        if self._types is None or self._types[0] != sizes:
            self._types = sizes, host_values.inferred(_to_model(self.graph, [
                _describe(name, value, value.shape) if isinstance(value, np.ndarray)
                else onnx.ValueInfoProto(name=name) for name, value in fed.items()
            ]))  # fmt: skip
        makers = {name: node for node in self.graph.nodes for name in node.outputs}
        return {name: host_values.as_declared(f"{name!r} of node {makers.get(name)}", value,
                                              self._types[1].get(name))
                for name, value in outputs.items()}  # fmt: skip

    def close(self) -> None:
        """Free the ONNX Runtime session."""
        self._fast = self._slow = None

    def _run_fast(self, names: Sequence[str], fed: Mapping[str, Any]) -> Sequence[Any]:
        if self._fast is None:
            runtime = load_onnxruntime()
            options = runtime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = max(0, int(settings.get("THREADS")))
            if self._is_short:
                options.intra_op_num_threads, options.enable_cpu_mem_arena = 1, False
            self._fast = _open_session(self._model(fed, typed=True), options)
            self.runner = "onnxruntime"
        return self._fast.run(names, fed)

    def _model(self, fed: Mapping[str, Any], typed: bool) -> onnx.ModelProto:
        """Build an ONNX model of the chunk; `typed` declares the inputs' dtypes and ranks."""
        return _to_model(self.graph, [
            _describe(name, value, [None] * np.ndim(value)) if typed
            else onnx.ValueInfoProto(name=name)
            for name, value in fed.items()
        ])  # fmt: skip


def to_proto(graph: Graph) -> onnx.ModelProto:
    """Return a graph as an ONNX model, for a model that was not loaded from ONNX.

    Raises ModelError for inputs that are not tensors.
    """
    inputs = []
    for info in graph.inputs:
        try:
            kind = ELEMENT_TYPES[info.dtype]
        except KeyError as error:
            raise ModelError(f"input {info} has no tensor type in ONNX") from error
        shape = None if info.shape == ANY_SHAPE else info.shape
        inputs.append(helper.make_tensor_value_info(info.name, kind, shape))
    return _to_model(graph, inputs)


def _to_model(graph: Graph, inputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
    constants = [
        numpy_helper.from_array(np.asarray(info.constant), name)
        for name, info in graph.initializers.items() if info.constant is not None
    ]  # fmt: skip
    proto = helper.make_graph(
        [functions.to_proto(node) for node in graph.nodes], "host part", inputs,
        [onnx.ValueInfoProto(name=name) for name in graph.outputs], constants,
    )  # fmt: skip
    opsets = dict(graph.opsets) or {"": graph.opset}
    for node in graph.nodes:
        opsets[node.domain] = graph.opset_of(node)
    ids = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(proto, opset_imports=ids)


def _may_trap(graph: Graph) -> bool:
    """Tell whether ONNX Runtime might divide integers by zero, which ends the process."""
    return any(
        node.op_type in ("Div", "Mod") and not node.domain
        and any(graph.infos[n].dtype in INTEGERS for n in node.inputs if n in graph.infos)
        for node in graph.nodes
    )  # fmt: skip


def _describe(name: str, value: Any, shape: Sequence[int | None]) -> onnx.ValueInfoProto:
    """Return the declaration of an input: its dtype, and a shape or a rank."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is a {type(value).__name__}")  # onnx.reference accepts these
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)


# Arithmetic on shapes in NumPy: creating an ONNX Runtime session takes a hundred times as long.
_PLAIN: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Where": np.where,
    "And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not, "Equal": np.equal,
    "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Concat": lambda *arrays, axis: np.concatenate(arrays, axis),
    "Gather": lambda data, indices, axis=0: data.take(indices, axis),
    "Expand": lambda data, shape: data | np.zeros(shape, data.dtype),
}  # fmt: skip


def evaluate(
    node: Node, graph: Graph, arrays: Sequence[np.ndarray | None]
) -> Sequence[Any]:
    """Compute one node with known inputs, for `plan.constant_folding`.

    Args:
        node: the node.
        graph: its graph, for the opset versions.
        arrays: one array for each input; None for an input left out.
    """
    plain = _PLAIN.get(node.op_type) if not node.domain else None
    if plain and all(array is not None and array.dtype.kind in "biu" for array in arrays):
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(plain(*arrays, **node.attributes))]
        except (TypeError, ValueError, IndexError):
            pass  # ONNX Runtime computes the node, or raises the clearer error
    fed = {name: array for name, array in zip(node.inputs, arrays, strict=True)
           if array is not None}  # fmt: skip
    chunk = _short_chunk(node, graph, fed)
    found = chunk.run(fed)
    return [found.get(name) for name in node.outputs]


# Sessions of folded nodes: a growing sequence folds the same ones for each size. The reference
# evaluator is not kept: with other values ONNX Runtime may be able to run the node.
_short_chunks: dict[Any, HostChunk] = {}
forking.in_child(_short_chunks.clear)
MOST_SHORT_CHUNKS = 256


def _short_chunk(node: Node, graph: Graph, fed: Mapping[str, np.ndarray]) -> HostChunk:
    """Return a chunk of one node whose inputs are given at each run."""
    infos = {name: TensorInfo(name, str(array.dtype), ANY_SHAPE) for name, array in fed.items()}
    ranks = tuple((name, str(array.dtype), array.ndim) for name, array in fed.items())
    meaning = operator_cache.key(graph, node, ())  # None for a node that has no equal
    key = (meaning, node.inputs, node.outputs, ranks)
    if meaning and key in _short_chunks and _short_chunks[key].runner == "onnxruntime":
        return _short_chunks[key]
    alone = replace(
        graph, nodes=(node,), inputs=tuple(infos.values()),
        outputs=tuple(filter(None, node.outputs)), initializers={}, infos=infos,
    )  # fmt: skip
    chunk = HostChunk(alone, is_short=True)
    if meaning:
        if len(_short_chunks) >= MOST_SHORT_CHUNKS:
            _short_chunks.clear()
        _short_chunks[key] = chunk
    return chunk
