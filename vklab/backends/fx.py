"""A torch module in float64: its outputs, and the values of its layers by their fx names.

Imports torch at the top, so import this module through `oracle.load_fx` only. The exporter names
ONNX values after the nodes of the same fx graph, so layers of both join by name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from vklab.errors import ModelError

__all__ = ["alone", "capture", "outputs", "values"]

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def outputs(module: torch.nn.Module, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tensors that a module returns, computed in float64, in their order.

    Args:
        module: a module in eval mode; it is not changed.
        args: arrays in the order of its forward.
    """
    with torch.no_grad():
        made = copy.deepcopy(module).double()(*map(_wide, args))
    return [_array(leaf) for leaf in _pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]


def values(module: torch.nn.Module, args: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the value of every fx node in float64 by the node's name, as the exporter names it.

    Args:
        module: a module in eval mode; it is not changed.
        args: arrays in the order of its forward.
    """
    return _Runner(capture(module, args), torch.float64).everything(args)


def capture(module: torch.nn.Module, args: Sequence[np.ndarray]) -> Any:
    """Return the torch.export.ExportedProgram of a module, with the exporter's names.

    Args:
        module: a module in eval mode.
        args: arrays in the order of its forward.

    Raises ModelError with torch's own reason.
    """
    try:
        given = tuple(_like(module, array) for array in args)
        with torch.no_grad():
            program = torch.export.export(module, given, strict=False)
            return program.run_decompositions({})
    except Exception as error:  # torch's errors share no other base class
        said = " ".join(str(error).split())[:300]
        raise ModelError(f"torch.export cannot capture {type(module).__name__}: {said}"
                         ) from error  # fmt: skip


def alone(
    module: torch.nn.Module, args: Sequence[np.ndarray], values: Mapping[str, np.ndarray],
    compute: str, weights: str = "",
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the value of every fx node by name, each node fed with given values.

    Args:
        module: a module in eval mode; it is not changed.
        args: arrays in the order of its forward.
        values: values to feed by fx name; a node whose value is missing passes its own on.
        compute: dtype of the computation; float32 for one that torch has no tensors of.
        weights: dtype to which the weights are rounded first; "" for none.

    Raises ModelError with torch's own reason, as for an operator that lacks the dtype.
    """
    kinds = getattr(torch, compute, torch.float32), getattr(torch, weights, None)
    runner = _Runner(capture(module, args), *kinds, values)
    try:
        return runner.everything(args)
    except Exception as error:  # torch's errors share no other base class
        said = " ".join(str(error).split())[:300]
        raise ModelError(f"torch cannot run a layer in {compute}: {said}") from error


class _Runner(torch.fx.Interpreter):
    """Interpreter of an exported program with one dtype in place of every float.

    Args:
        program: the program.
        compute: the dtype.
        weights: dtype to which weights are rounded first; None for none.
        values: values that replace those of nodes wherever they are read.
    """

    def __init__(
        self, program: Any, compute: torch.dtype, weights: torch.dtype | None = None,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(program.graph_module)
        self._program, self._compute, self._weights = program, compute, weights
        self._values = values or {}
        self._found: dict[str, np.ndarray] = {}

    def everything(self, args: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return every value by the name of its fx node."""
        stored = {**self._program.state_dict, **self._program.constants}
        fed, given = [], iter(args)
        for spec in self._program.graph_signature.input_specs:
            if spec.target in stored:
                fed.append(self._cast(self._rounded(stored[spec.target])))
            else:
                fed.append(self._tensor(next(given)))
        with torch.no_grad():
            self.run(*fed)
        return self._found

    def run_node(self, node: torch.fx.Node) -> Any:
        """Run one node, and keep its value."""
        made = super().run_node(node)
        if isinstance(made, torch.Tensor) and node.op == "call_function":
            self._found[node.name] = _array(made)
            if node.name in self._values and made.is_floating_point():
                return self._tensor(self._values[node.name])
        return made

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator, with the one dtype where the program asks for a float."""
        args, kwargs = _pytree.tree_map(self._cast, (args, kwargs))
        return super().call_function(target, args, kwargs)

    def _cast(self, leaf: Any) -> Any:
        """Return a tensor of floats, or a dtype of floats, in the one dtype."""
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach().to(self._compute)
        return self._compute if isinstance(leaf, torch.dtype) and leaf in FLOATS else leaf

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        device = next(iter(self._program.state_dict.values()), torch.empty(0)).device
        cast: torch.Tensor = self._cast(torch.from_numpy(np.array(array)).to(device))
        return cast

    def _rounded(self, tensor: torch.Tensor) -> torch.Tensor:
        is_rounded = self._weights is not None and tensor.is_floating_point()
        return tensor.to(self._weights) if is_rounded else tensor


def _wide(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array))
    return tensor.double() if tensor.is_floating_point() else tensor


def _like(module: torch.nn.Module, array: np.ndarray) -> torch.Tensor:
    """Return an argument on the module's device, floats in the dtype of its weights."""
    weights = [tensor for tensor in module.parameters() if tensor.is_floating_point()]
    first = weights[0] if weights else torch.empty(0)
    tensor = torch.from_numpy(np.array(array)).to(first.device)
    return tensor.to(first.dtype) if tensor.is_floating_point() else tensor


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
