"""Host chunks and folded nodes: run in ONNX Runtime on the CPU, or in `onnx.reference`.

Both may crash, hang or take all memory of this process, so `host_rules` refuses before what is
known to do so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab import settings
from vklab.base import forking
from vklab.base.worker import Failure
from vklab.errors import ModelError, SetupError
from vklab.graph import onnx_functions, operator_cache
from vklab.graph.graph import Graph, Node
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.runtime import declared
from vklab.runtime.on_cpu import cpu_session, host_rules, host_values, onnx_evaluator
from vklab.runtime.on_cpu.cpu_session import load_onnxruntime
from vklab.runtime.on_cpu.reference_process import ProcessModel
from vklab.runtime.on_cpu.typed_session import TypedSession
from vklab.types import ANY_SHAPE, TensorInfo

__all__ = [
    "HostChunk",
    "Reference",
    "evaluate",
    "load_onnxruntime",
    "readable",
    "serialized",
    "to_proto",
]


class Reference(cpu_session.CpuReference):
    """A model in ONNX Runtime on the CPU, in this process: for models that are trusted."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        super().__init__(serialized(proto))


def serialized(proto: onnx.ModelProto) -> bytes:
    """Return a model for ONNX Runtime, of an IR version that it reads."""
    return host_values.expanded(readable(proto)).SerializeToString()


def readable(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model with the oldest IR version that its opsets allow.

    The onnx package writes newer IR versions than ONNX Runtime reads; their additions are unused.
    """
    oldest = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    readable = onnx.ModelProto()
    readable.CopyFrom(proto)
    readable.ir_version = min(proto.ir_version or 8, max(oldest, 8))
    return readable


class HostChunk:
    """A chunk of host nodes, in the parts that `host_rules` asks for."""

    def __init__(self, graph: Graph, is_short: bool = False) -> None:
        self.graph = graph
        self._parts = [_Part(part, is_short) for part in host_rules.parts(graph)]

    @property
    def runner(self) -> str:
        """Return what runs the last part: "onnxruntime", "onnx.reference", or "" before a run."""
        return self._parts[-1].runner

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of the chunk by name.

        Raises ModelError naming nodes that fail, SetupError if one needs a package that is missing.
        """
        if len(self._parts) == 1:
            return declared.require(self.graph, self._parts[0].run(values))
        known = dict(values)
        for part in self._parts:
            known.update(part.run(known))
        return declared.require(self.graph, {name: known[name] for name in self.graph.outputs})

    def close(self) -> None:
        """Free the ONNX Runtime sessions."""
        for part in self._parts:
            part.close()


class _Part:
    """Host nodes that run in ONNX Runtime, or in onnx.reference where that does not.

    The latter works in the process of references, as its loops in Python may take hours.
    """

    def __init__(self, graph: Graph, is_short: bool) -> None:
        self.graph = graph
        self.runner = ""
        self._is_short = is_short  # for a single run: no threads and no arena, they cost the most
        self._fast: TypedSession | None = None
        self._refusal: Exception | None = None  # of ONNX Runtime to load the nodes
        self._slow: ProcessModel | None = None
        self._types: tuple[Any, Mapping[str, onnx.TypeProto]] | None = None

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name; raise ModelError naming nodes that fail."""
        fed = {info.name: values[info.name] for info in self.graph.inputs}
        host_rules.require(self.graph, fed)
        if host_rules.traps(self.graph, fed):
            return self._run_slow(fed, "would end this process")
        if host_values.differs(self.graph.nodes):
            return self._run_slow(fed, "computes them in another way than ONNX")
        if self._refusal:
            return self._run_slow(fed, self._refusal)
        names = list(self.graph.outputs)
        try:
            session = self._fast or self._open(fed)
        except Exception as error:  # ONNX Runtime's exceptions share no base
            self._refusal = error
            return self._run_slow(fed, error)
        try:
            return dict(zip(names, session.run(names, fed), strict=True))
        except Exception as error:
            return self._run_slow(fed, error)

    def close(self) -> None:
        """Free the sessions."""
        if self._slow is not None:
            self._slow.close()
        self._fast = self._slow = None

    def _open(self, fed: Mapping[str, Any]) -> TypedSession:
        """Return a new session for the dtypes and ranks of inputs."""
        options = load_onnxruntime().SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = max(0, int(settings.get("THREADS")))
        if self._is_short:
            options.intra_op_num_threads, options.enable_cpu_mem_arena = 1, False
        model = serialized(self._model(fed, typed=True))
        self._fast, self.runner = cpu_session.open_session(model, options), "onnxruntime"
        return self._fast

    def _run_slow(self, fed: Mapping[str, Any], reason: Exception | str) -> dict[str, Any]:
        """Run the nodes in onnx.reference.

        Args:
            fed: the inputs by name.
            reason: why ONNX Runtime did not run them.
        """
        self.runner = "onnx.reference"
        if self._slow is None:
            model = self._model(fed, typed=False).SerializeToString()
            self._slow = ProcessModel(lambda: (model, None), onnx_evaluator.load)
        try:
            return self._as_inferred(fed, self._slow.run(fed))
        except Failure as failure:
            nodes = ", ".join(str(node) for node in self.graph.nodes[:3])
            if failure.install:
                raise SetupError(
                    f"the host cannot run {nodes}: {failure.reason}", failure.install
                ) from failure
            raise ModelError(
                f"the host cannot run {nodes}: ONNX Runtime: {reason}; "
                f"onnx.reference: {failure.reason}"
            ) from failure

    def _as_inferred(self, fed: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of onnx.reference as what ONNX infers for these inputs."""
        sizes = tuple(
            (array.dtype, array.shape) if isinstance(array, np.ndarray) else None
            for array in fed.values()
        )
        if self._types is None or self._types[0] != sizes:
            self._types = (
                sizes,
                host_values.inferred(
                    _to_model(
                        self.graph,
                        [
                            _describe(name, value, value.shape)
                            if isinstance(value, np.ndarray)
                            else onnx.ValueInfoProto(name=name)
                            for name, value in fed.items()
                        ],
                    )
                ),
            )
        makers = {name: node for node in self.graph.nodes for name in node.outputs}
        return {
            name: host_values.as_declared(
                f"{name!r} of node {makers.get(name)}", value, self._types[1].get(name)
            )
            for name, value in outputs.items()
        }

    def _model(self, fed: Mapping[str, Any], typed: bool) -> onnx.ModelProto:
        """Build an ONNX model of the chunk; `typed` declares the inputs' dtypes and ranks."""
        return _to_model(
            self.graph,
            [
                _describe(name, value, [None] * np.ndim(value))
                if typed
                else onnx.ValueInfoProto(name=name)
                for name, value in fed.items()
            ],
        )


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
        for name, info in graph.initializers.items()
        if info.constant is not None
    ]
    proto = helper.make_graph(
        [onnx_functions.to_proto(node) for node in graph.nodes],
        "host part",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in graph.outputs],
        constants,
    )
    opsets = dict(graph.opsets) or {"": graph.opset}
    for node in graph.nodes:
        opsets[node.domain] = graph.opset_of(node)
    ids = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(proto, opset_imports=ids)


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


def evaluate(node: Node, graph: Graph, arrays: Sequence[np.ndarray | None]) -> Sequence[Any]:
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
    fed = {
        name: array for name, array in zip(node.inputs, arrays, strict=True) if array is not None
    }
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
        graph,
        nodes=(node,),
        inputs=tuple(infos.values()),
        outputs=tuple(filter(None, node.outputs)),
        initializers={},
        infos=infos,
    )
    chunk = HostChunk(alone, is_short=True)
    if meaning:
        if len(_short_chunks) >= MOST_SHORT_CHUNKS:
            _short_chunks.clear()
        _short_chunks[key] = chunk
    return chunk
