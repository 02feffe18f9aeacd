"""Models in PyTorch: an ONNX graph as a module, and runs that are eager, captured or compiled.

Imports torch at the top, so import this module through `torch.load` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from vklab.apps.compare.backend import Refused
from vklab.apps.compare.speed.runners.runner import Arrays, Case, Timed
from vklab.apps.compare.torch import fx

WARM_UP = 3  # runs before a capture: libraries allocate and choose their kernels
Tensors = tuple[torch.Tensor, ...]


class OnnxModule(torch.nn.Module):
    """Graph of an ONNX file, executed by PyTorch's functions in order.

    Args:
        model: the model; its operators are those of the benchmark models.

    Raises Refused for an operator that is not in the table.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self._nodes: list[tuple[Callable[..., Any], Any, list[str], str]] = []
        self._arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        for number, array in enumerate(self._arrays.values()):
            if array.dtype.kind == "f":
                self.register_buffer(f"weight{number}", torch.from_numpy(array.copy()))
        self._weights = {
            name: f"weight{number}"
            for number, (name, array) in enumerate(self._arrays.items())
            if array.dtype.kind == "f"
        }
        self.inputs = [v.name for v in model.graph.input if v.name not in self._arrays]
        self.outputs = [v.name for v in model.graph.output]
        for node in model.graph.node:
            if node.op_type not in OPERATORS:
                raise Refused(f"{node.op_type} has no PyTorch function in the benchmark's table")
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            if node.op_type in ("Reshape", "ReduceMax", "ReduceSum"):
                given["numbers"] = [int(n) for n in self._arrays[node.input[1]]]
            self._nodes.append((OPERATORS[node.op_type], given, list(node.input), node.output[0]))
        self._arrays = {}

    def forward(self, *given: torch.Tensor) -> Tensors:
        """Return the outputs in the order of the graph."""
        values = dict(zip(self.inputs, given, strict=True))
        values |= {name: getattr(self, buffer) for name, buffer in self._weights.items()}
        for function, attributes, inputs, output in self._nodes:
            values[output] = function(attributes, *[values[n] for n in inputs if n in values])
        return tuple(values[name] for name in self.outputs)


def _padded(attributes: Mapping[str, Any], x: torch.Tensor) -> torch.Tensor:
    """Return an image padded as ONNX says; SAME_UPPER is that of stride 1."""
    pads = list(attributes.get("pads", (0, 0, 0, 0)))
    if attributes.get("auto_pad", b"NOTSET") == b"SAME_UPPER":
        height, width = (size - 1 for size in attributes["kernel_shape"])
        pads = [height // 2, width // 2, height - height // 2, width - width // 2]
    top, left, bottom, right = pads
    return functional.pad(x, (left, right, top, bottom)) if any(pads) else x


def _conv(attributes: Mapping[str, Any], x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    pads = attributes.get("pads", [])
    same = attributes.get("auto_pad") == b"SAME_UPPER" and all(
        size % 2 for size in attributes["kernel_shape"]
    )
    padding = [size // 2 for size in attributes["kernel_shape"]] if same else [0, 0]
    if len(pads) == 4 and pads[:2] == pads[2:]:
        padding, same = list(pads[:2]), True
    return functional.conv2d(
        x if same else _padded(attributes, x),
        *weights,
        stride=attributes.get("strides", (1, 1)),
        padding=padding,
        groups=attributes.get("group", 1),
    )


def _pool(attributes: Mapping[str, Any], x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, attributes["kernel_shape"], attributes.get("strides", 1))


def _gemm(attributes: Mapping[str, Any], x: torch.Tensor, weight: torch.Tensor,
          bias: torch.Tensor) -> torch.Tensor:  # fmt: skip
    return functional.linear(x, weight if attributes.get("transB") else weight.t(), bias)


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, x, y: x + y,
    "ArgMax": lambda a, x: torch.argmax(x, a["axis"], keepdim=bool(a["keepdims"])),
    "Conv": _conv,
    "Gemm": _gemm,
    "LayerNormalization": lambda a, x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, 1e-5),
    "MatMul": lambda a, x, y: x @ y,
    "MaxPool": _pool,
    "ReduceMax": lambda a, x: torch.amax(x, a["numbers"], keepdim=bool(a["keepdims"])),
    "ReduceSum": lambda a, x: torch.sum(x, a["numbers"], keepdim=bool(a["keepdims"])),
    "Relu": lambda a, x: torch.relu(x),
    "Reshape": lambda a, x: x.reshape(a["numbers"]),
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Transpose": lambda a, x: x.permute(a["perm"]).contiguous(),
}
"""Functions of (attributes, *tensors) by op_type."""


def load(case: Case, mode: str, dtype: str) -> Eager:
    """Return a model on the GPU, or on the CPU where there is none.

    Args:
        case: the model.
        mode: one of `on_torch.MODES`, or "resident" for a graph without copies.
        dtype: "float32", "tfloat32" or "float16".
    """
    fx.set_precision(dtype)
    with np.load(case.inputs) as inputs, np.load(case.expected) as expected:
        names, outputs = list(inputs.files), list(expected.files)
    if case.module is not None:
        module = torch.load(case.module, weights_only=False)  # written by `cases`
    else:
        module = OnnxModule(onnx.load(case.onnx))
        names, outputs = module.inputs, module.outputs
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    module = module.eval().to(kind)
    module = module.half() if dtype == "float16" else module
    kinds: dict[str, type[Eager]] = {"graph": Captured, "resident": Resident}
    made = kinds.get(mode, Eager)(module, names, outputs, dtype == "float16")
    if mode == "compiled":
        made.call = torch.compile(module)
    on = torch.cuda.get_device_name(0) if kind == "cuda" else "CPU"
    strict = ", strict" if dtype == "float32" and kind == "cuda" else ""
    made.variant = f"{on}, {mode}, {dtype}{strict}"
    return made


class Eager(Timed):
    """A module on its device, fed with arrays of the host.

    Args:
        module: the module.
        inputs: names of its arguments.
        outputs: names of its results.
        half: whether floats are given as float16.
    """

    def __init__(
        self, module: torch.nn.Module, inputs: list[str], outputs: list[str], half: bool
    ) -> None:
        self.call: Any = module
        self._inputs, self._outputs, self._half = inputs, outputs, half
        self._kind = next(
            (t.device.type for t in (*module.parameters(), *module.buffers())),
            "cuda" if torch.cuda.is_available() else "cpu",
        )
        self.variant = ""
        self.versions = {"torch": str(torch.__version__)}

    def _given(self, inputs: Arrays) -> list[torch.Tensor]:
        tensors = [torch.from_numpy(inputs[name]).to(self._kind) for name in self._inputs]
        return [t.half() if self._half and t.is_floating_point() else t for t in tensors]

    def _results(self, made: Any) -> list[torch.Tensor]:
        return list(made) if isinstance(made, (tuple, list)) else [made]

    @torch.no_grad()
    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name, as arrays on the host."""
        made = self._results(self.call(*self._given(inputs)))
        return {
            name: tensor.float().cpu().numpy()
            if tensor.is_floating_point()
            else tensor.cpu().numpy()
            for name, tensor in zip(self._outputs, made, strict=True)
        }

    @torch.no_grad()
    def device_ns(self, inputs: Arrays, runs: int) -> list[float]:
        """Return the mean time of runs in a row, by the GPU's events; [] on a CPU."""
        given = self._given(inputs)
        return _event_ns(lambda: self.call(*given), runs) if self._kind == "cuda" else []

    def close(self) -> None:
        """Free the module."""
        self.call = None
        if self._kind == "cuda":
            torch.cuda.empty_cache()


class Captured(Eager):
    """A module whose runs are replayed from a CUDA graph that holds the copies, too.

    Source: https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
    """

    _graph: Any = None
    _alone: Any = None

    @torch.no_grad()
    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name; the first run captures the graph."""
        if self._graph is None:
            self._capture(inputs)
        for name, pinned in zip(self._inputs, self._host_in, strict=True):
            pinned.numpy()[...] = inputs[name]
        self._graph.replay()
        self._stream.synchronize()
        return {
            name: tensor.numpy().copy()
            for name, tensor in zip(self._outputs, self._host_out, strict=True)
        }

    def _capture(self, inputs: Arrays) -> None:
        self._stream = torch.cuda.current_stream()
        self._host_in = [torch.from_numpy(inputs[n]).pin_memory() for n in self._inputs]
        given = self._given(inputs)
        side = torch.cuda.Stream()
        side.wait_stream(self._stream)
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                made = self._results(self.call(*given))
        self._stream.wait_stream(side)
        self._host_out = [
            torch.empty(
                t.shape, dtype=torch.float32 if t.is_floating_point() else t.dtype
            ).pin_memory()
            for t in made
        ]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            staged = [t.to(self._kind, non_blocking=True) for t in self._host_in]
            fed = [t.half() if self._half and t.is_floating_point() else t for t in staged]
            for pinned, tensor in zip(self._host_out, self._results(self.call(*fed)), strict=True):
                wide = tensor.float() if tensor.is_floating_point() else tensor
                pinned.copy_(wide, non_blocking=True)
        alone = torch.cuda.CUDAGraph()
        with torch.cuda.graph(alone):
            self._kept = self.call(*given)
        self._graph, self._alone, self._fed = graph, alone, given

    @torch.no_grad()
    def device_ns(self, inputs: Arrays, runs: int) -> list[float]:
        """Return the mean time of replays in a row without copies, by the GPU's events."""
        if self._alone is None:
            self._capture(inputs)
        return _event_ns(self._alone.replay, runs)

    def close(self) -> None:
        """Free the graphs and the module."""
        self._graph = self._alone = self._kept = None
        self._fed, self._host_in, self._host_out = [], [], []
        super().close()


class Resident(Captured):
    """A captured module whose inputs and outputs stay on the GPU."""

    @torch.no_grad()
    def run(self, inputs: Arrays) -> dict[str, Any]:
        """Return the outputs by name, copied to the host for who asks; the first run captures."""
        if self._alone is None:
            self._capture(inputs)
        self._alone.replay()
        self._stream.synchronize()
        return {
            name: _Copied(tensor)
            for name, tensor in zip(self._outputs, self._results(self._kept), strict=True)
        }


class _Copied:
    """A tensor of the GPU that NumPy reads."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._tensor.float().cpu().numpy(), dtype)


def _event_ns(call: Callable[[], Any], runs: int) -> list[float]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    for _ in range(runs):
        call()
    end.record()
    end.synchronize()
    return [begin.elapsed_time(end) * 1e6 / runs]
