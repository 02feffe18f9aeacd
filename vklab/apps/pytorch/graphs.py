"""Sessions of a graph that Dynamo captured: one for each set of weights of a call.

Decides when a session is out of date: its weights are constants, and PyTorch's weights change.
Visited by lab 09.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import onnx
import torch
from torch._guards import tracing
from torch.utils._python_dispatch import _disable_current_modes

from vklab.apps.pytorch import capture, exporter, tensors
from vklab.errors import HostWarning, ModelError, VklabError
from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.runtime import open_devices, session
from vklab.types import TensorInfo

# Exports of one graph, each for other Python numbers or shapes, before it stays in PyTorch.
MOST_EXPORTS = 8
# Sessions of one graph, which modules share: the layers of a transformer, compiled one by one.
MOST_WEIGHT_SETS = 64
# Changes of weights after which each run feeds the weights as inputs.
MOST_CHANGES = 3


class SideEffects(Exception):
    """A graph writes to an input or returns a view of one; ONNX cannot express either."""


@dataclass(frozen=True)
class Options:
    """Options of the backend: the keys of `torch.compile(..., options={...})`."""

    device: int | str | None = None
    dtype: str | None = None
    fallback: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Return the options of a mapping. Raises ModelError for an unknown key."""
        names = [item.name for item in fields(cls)]
        unknown = sorted(set(given or {}) - set(names))
        if unknown:
            raise ModelError(f'backend "vklab" has no options {unknown}; choose among {names}')
        return cls(**(given or {}))


def stay_in_torch(
    graph: torch.fx.GraphModule, options: Options, error: VklabError
) -> Callable[..., Any]:
    """Return the graph's function in PyTorch and log the error, or raise it without fallback.

    Args:
        graph: the graph that Dynamo captured.
        options: their `fallback` decides between the log and the exception.
        error: the reason why vklab cannot run the graph.
    """
    if not options.fallback:
        raise error
    HostWarning.issue(f"a graph of {len(graph.graph.nodes)} nodes stays in PyTorch: {error}")
    return graph.forward


@dataclass(frozen=True)
class _Exported:
    """A graph in ONNX with its weights among the inputs, and the kind of each output."""

    proto: onnx.ModelProto
    graph: Graph
    outputs: Sequence[tuple[torch.dtype, torch.device] | type[int] | None]


@dataclass(frozen=True)
class _Loaded:
    """A session, and the versions of PyTorch's weights that it was made from."""

    session: session.Session
    state: tuple[Any, ...]
    owners: tuple[weakref.ref, ...]


class CompiledGraph:
    """A graph of Dynamo or AOTAutograd that runs on a Vulkan device.

    Args:
        graph: the graph that was captured.
        example_inputs: its inputs: fake tensors, Python numbers and symbolic sizes.
        weights: numbers of the inputs that are parameters or buffers of modules.
        options: device, dtype and fallback.
        is_functional: the graph mutates no input and returns no view.

    Raises ModelError if the graph cannot be exported, and SideEffects if it mutates an input or
    returns a view without `is_functional`.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        weights: set[int],
        options: Options,
        is_functional: bool,
    ) -> None:
        self.graph = graph
        self.options = options
        nodes = graph.graph.find_nodes(op="placeholder")
        fakes = [node.meta.get("example_value", node.meta.get("val")) for node in nodes]
        self._tensors = [n for n, v in enumerate(example_inputs) if isinstance(v, torch.Tensor)]
        self._weights = self._watched = weights & set(self._tensors)
        self._open = [capture.open_dims(fakes[number]) for number in self._tensors]
        self._sources = [self._source(fakes, number) for number in range(len(nodes))]
        self._is_functional = is_functional
        self._is_static = False
        self._eager: Callable[..., Any] | None = None
        self._lock = threading.RLock()
        self._exports: dict[Any, _Exported] = {}
        self._loaded: dict[Any, _Loaded] = {}
        self._changes = 0
        open_devices.select(options.device)
        with tracing(None), _disable_current_modes():
            self._find_export([capture.concrete(value) for value in example_inputs])

    def _source(self, fakes: Sequence[Any], number: int) -> tuple[int, int] | None:
        """Return the tensor and the axis whose size an input is, or None for another input."""
        if number in self._tensors or not isinstance(fakes[number], torch.SymInt):
            return None
        for index, tensor in enumerate(self._tensors):
            for axis, dim in enumerate(fakes[tensor].shape):
                if isinstance(dim, torch.SymInt) and dim.node.expr == fakes[number].node.expr:
                    return index, axis
        return None

    def __call__(self, *args: Any) -> Any:
        """Run once; after a failure to make a session, run in PyTorch from then on."""
        if self._eager is None:
            try:
                with self._lock:
                    exported = self._find_export(args)
                    loaded = self._find_session(exported, args)
            except VklabError as error:
                self.close()
                self._eager = stay_in_torch(self.graph, self.options, error)
        if self._eager is not None:
            return self._eager(*args)
        names = [info.name for info in exported.graph.inputs]
        feeds = {
            name: tensors.to_array(args[number])
            for name, number in zip(names, self._tensors, strict=True)
            if number not in self._weights
        }
        arrays = iter(loaded.session.run(feeds).values())
        return tuple(_output(arrays, kind) for kind in exported.outputs)

    def close(self) -> None:
        """Close the sessions; the next run opens new ones."""
        with self._lock:
            while self._loaded:
                self._loaded.popitem()[1].session.close()

    # ---------------------------------------------------------------------------------- exports

    def _find_export(self, args: Sequence[Any]) -> _Exported:
        """Return the graph in ONNX for a call's Python numbers, and for its shapes if fixed."""
        pairs = zip(self._sources, args, strict=True)
        key: tuple[Any, ...] = tuple(
            value for source, value in pairs if not (source or isinstance(value, torch.Tensor))
        )
        if self._is_static:
            key += tuple(tuple(args[number].shape) for number in self._tensors)
        if key not in self._exports:
            if len(self._exports) == MOST_EXPORTS:
                raise ModelError(
                    f"the graph is called with more than {MOST_EXPORTS} sets of "
                    "Python numbers or shapes, each a separate export"
                )
            try:
                self._exports[key] = self._export(args)
            except ModelError:
                if self._is_static or not any(self._open):
                    raise
                self._is_static = True  # the graph fixes a size that Dynamo left open
                return self._find_export(args)
        return self._exports[key]

    def _export(self, args: Sequence[Any]) -> _Exported:
        outputs: list[Any] = []
        module = capture.Positional(
            self.graph, self._tensors, self._sources, args, self._is_functional, outputs.append
        )
        given = tuple(args[number] for number in self._tensors)
        any_size = torch.export.Dim.DYNAMIC
        shapes = [{} if self._is_static else dict.fromkeys(dims, any_size) for dims in self._open]
        program = exporter.export(module, given, {}, {"given": tuple(shapes)})
        is_pure = capture.is_pure(program.exported_program)
        if not (is_pure or self._is_functional):
            raise SideEffects
        if len(program.model.graph.inputs) != len(given):
            raise ModelError(
                f"the exporter kept {len(program.model.graph.inputs)} of {len(given)} inputs"
            )
        proto = program.model_proto
        return _Exported(proto, onnx_import.from_proto(proto), outputs[-1])

    # --------------------------------------------------------------------------------- sessions

    def _find_session(self, exported: _Exported, args: Sequence[Any]) -> _Loaded:
        """Return the session for the weights of a call."""
        weights = [args[number] for number in sorted(self._weights)]
        key = (id(exported), *map(id, weights))
        state = tuple(map(_state, weights))
        known = self._loaded.get(key)
        if known is not None and known.state == state:
            return known
        if known is not None:
            self._loaded.pop(key).session.close()
            self._changes += 1
            if self._changes > MOST_CHANGES:
                self.close()
                self._weights = set()
                return self._find_session(exported, args)
        if len(self._loaded) >= MOST_WEIGHT_SETS:
            self._loaded.pop(next(iter(self._loaded))).session.close()
        # Dynamo keeps its graphs when a model is gone, so the weights' end removes the session.
        # The garbage collector calls this at any moment: leave it to the device to free buffers.
        loaded = self._loaded
        owners = tuple(
            weakref.ref(args[number], lambda _: loaded.pop(key, None)) for number in self._watched
        )
        loaded[key] = _Loaded(self._load(exported, args), state, owners)
        return loaded[key]

    def _load(self, exported: _Exported, args: Sequence[Any]) -> session.Session:
        """Return a session with the weights of a call as constants in place of inputs."""
        graph, bound = exported.graph, {}
        for info, number in zip(graph.inputs, self._tensors, strict=True):
            if number in self._weights:
                array = tensors.to_array(args[number])
                bound[info.name] = TensorInfo(info.name, info.dtype, array.shape, array)
        graph = replace(
            graph,
            inputs=tuple(info for info in graph.inputs if info.name not in bound),
            initializers={**graph.initializers, **bound},
            infos={**graph.infos, **bound},
        )
        opened = open_devices.open_device(self.options.device)
        return session.Session(graph, opened, exported.proto, dtype=self.options.dtype)


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """Return a tensor's address and version, which change when its values do."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _output(arrays: Any, kind: Any) -> Any:
    """Return the next output in the kind of the graph's output: a tensor, a number or None."""
    if kind is None:
        return None
    array = next(arrays)
    return int(array) if kind is int else tensors.to_tensor(array, *kind)
