"""PyTorch modules made by their factory: run on a device, looked into by fx, exported to ONNX.

Imports torch at the top, so import this module through `torch.load_modules` only.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree

from vklab.apps.compare.backend import Dtypes, ModelSource, Refused
from vklab.apps.compare.layerwise import cuts, layers
from vklab.apps.compare.layerwise.layers import Local
from vklab.apps.compare.models import inputs as graph_inputs
from vklab.apps.compare.torch import backend, fx
from vklab.base.endings import one_line
from vklab.errors import ModelError

OPSET = 18


def missing(kind: str) -> str:
    """Return why this torch has no device of a kind; "" if it has one."""
    if kind == "cpu":
        return ""
    have = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "xpu": torch.xpu.is_available,
    }[kind]()
    return "" if have else f"torch {torch.__version__} sees no {kind} device"


def make(factory: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return the module in eval mode and its example tensors; ModelError for a wrong factory."""
    name, colon, function = factory.partition(":")
    if not colon or not function:
        raise ModelError(f"{factory!r} is no factory; write MODULE:FUNCTION")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module beside the command's user
    try:
        made = getattr(importlib.import_module(name), function)()
    except (ImportError, AttributeError) as error:
        raise ModelError(f"there is no factory {factory}: {error}") from error
    module, examples = made if isinstance(made, tuple) and len(made) == 2 else (None, ())
    examples = (examples,) if isinstance(examples, torch.Tensor) else examples
    given: tuple[Any, ...] = tuple(examples) if isinstance(examples, (tuple, list)) else ()
    tensors = given and all(isinstance(each, torch.Tensor) for each in given)
    if not isinstance(module, torch.nn.Module) or not tensors:
        raise ModelError(
            f"{factory} must return a pair: an nn.Module, and the tuple of its example tensors"
        )
    return module.eval(), given


def parameter_names(module: torch.nn.Module, count: int) -> list[str]:
    """Return the names of the first parameters of a module's forward."""
    return list(inspect.signature(module.forward).parameters)[:count]


def output_names(values: Any) -> list[str]:
    """Return a name for each tensor that a module returned: "output", "output_1", or dict keys."""
    if isinstance(values, Mapping):
        return [str(key) for key in values]
    count = sum(isinstance(leaf, torch.Tensor) for leaf in _pytree.tree_leaves(values))
    return [f"output_{number}" if number else "output" for number in range(count)]


def export(
    factory: str, path: Path, opset: int = OPSET, open_batch: bool = False
) -> dict[str, Any]:
    """Write a module as an ONNX file, and return facts of it.

    Args:
        factory: "module:function".
        path: file to write.
        opset: version asked for; torch may give another, which the facts say.
        open_batch: whether the first dimension of each input is open.

    Raises ModelError if torch cannot export it, or if onnx finds the file wrong.
    """
    module, examples = make(factory)
    shapes = None
    if open_batch:  # torch.export fixes a dimension of size 1
        examples = tuple(torch.cat([each, each]) for each in examples)
        shapes = tuple({0: "batch"} for _ in examples)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = output_names(module(*examples))
        try:
            program = torch.onnx.export(
                module,
                examples,
                dynamo=True,
                opset_version=opset,
                verbose=False,
                input_names=parameter_names(module, len(examples)),
                output_names=names,
                dynamic_shapes=shapes,
            )
        except Exception as error:  # torch's errors share no other base class
            raise ModelError(f"{factory} cannot be exported to ONNX: {one_line(error)}") from error
        program.save(str(path))
    return _checked(path, opset)


def _checked(path: Path, opset: int) -> dict[str, Any]:
    """Check an exported file, and return its facts."""
    model = onnx.load(path)
    onnx.checker.check_model(model)
    obtained = next(item.version for item in model.opset_import if not item.domain)
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        shapes = ""
    except onnx.shape_inference.InferenceError as error:
        shapes = one_line(error)
    return {
        "opset": obtained,
        "asked": opset,
        "shapes": shapes,
        "nodes": len(model.graph.node),
        "inputs": [value.name for value in model.graph.input],
        "outputs": [value.name for value in model.graph.output],
        "bytes": sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*")),
    }


class Loaded:
    """A module on a device.

    Args:
        source: the model; its ONNX form, if it has one, names inputs and outputs.
        kind: kind of device.
        compiled: whether to use torch.compile.
        dtype: "float32", "tfloat32" or "float16".
    """

    def __init__(self, source: ModelSource, kind: str, compiled: bool, dtype: str) -> None:
        if compiled and kind == "cpu" and not backend.has_compiler():
            raise Refused("torch.compile needs a C++ compiler on the CPU: install g++ or clang")
        self._factory = source.factory
        self._module, examples = make(source.factory)
        self._inputs, self._outputs = _names(source, self._module, len(examples))
        self._programs: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._kind, self._dtype = kind, torch.float16 if dtype == "float16" else torch.float32
        fx.set_precision(dtype)
        self._module = self._module.to(kind)
        self._module = self._module.half() if dtype == "float16" else self._module
        self._call = torch.compile(self._module) if compiled else self._module
        self.device = torch.cuda.get_device_name(0) if kind == "cuda" else ""
        self.versions = {"torch": str(torch.__version__)}
        tensors = {
            t.data_ptr(): t.nbytes for t in (*self._module.parameters(), *self._module.buffers())
        }
        self.size_bytes = sum(tensors.values())
        self.nodes: dict[str, int] = {}  # eager operators are no nodes of a graph

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name, as arrays on the host."""
        with torch.no_grad():
            made = self._call(*self._arguments(inputs))
        leaves = [leaf for leaf in _pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        names = self._outputs or output_names(made)
        return dict(zip(names, map(fx.array_of, leaves), strict=True))

    def layers(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of the exported program by fx name, which ONNX values have, too."""
        given = self._arguments(inputs)
        watched = fx.Watched(self._captured(self._ordered(inputs)))
        made = watched.run_program(given)
        leaves = [leaf for leaf in made if isinstance(leaf, torch.Tensor)]
        names = self._outputs or output_names(leaves)
        return watched.by_node | dict(zip(names, map(fx.array_of, leaves), strict=True))

    def layers_alone(
        self, inputs: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray], dtypes: Dtypes
    ) -> tuple[Local, dict[str, np.ndarray]]:
        """Return what each layer should return if it is fed the truth, and what it returns.

        Args:
            inputs: arrays by input name.
            truth: values of layers in float64 by fx name.
            dtypes: dtypes of the backend.
        """
        args = [inputs[name] for name in self._inputs]
        program = self._captured(args)
        is_plain = self._kind == "cpu" and self._dtype == torch.float32
        full = program if is_plain else fx.capture(make(self._factory)[0], args)
        given = layers.of_module(full, args, truth, dtypes)
        kind = str(self._dtype).removeprefix("torch.")
        made = fx.alone(program, args, given.inputs, kind)
        return given, {f"{name}{cuts.LOCAL}": value for name, value in made.items()}

    def _captured(self, args: Sequence[np.ndarray]) -> Any:
        """Return the exported program, which fits arguments of the same shapes: made once."""
        shapes = tuple(np.shape(array) for array in args)
        if shapes not in self._programs:
            self._programs = {shapes: fx.capture(self._module, args)}
        return self._programs[shapes]

    def _arguments(self, inputs: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, ...]:
        return tuple(map(self._tensor, self._ordered(inputs)))

    def _ordered(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        missing = [name for name in self._inputs if name not in inputs]
        return list(inputs.values()) if missing else [inputs[name] for name in self._inputs]

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(array)).to(self._kind)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    def close(self) -> None:
        """Free the module."""
        self._module = self._call = torch.nn.Identity()


def _names(source: ModelSource, module: Any, count: int) -> tuple[list[str], list[str]]:
    """Return names of inputs and outputs: those of the ONNX form, else the module's own."""
    if source.onnx is None:
        return parameter_names(module, count), []
    proto = onnx.load(source.onnx, load_external_data=False)
    outputs = [value.name for value in proto.graph.output]
    return graph_inputs.names(proto), outputs
