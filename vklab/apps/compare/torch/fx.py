"""A torch module in float64: its outputs, and the values of its layers by their fx names.

Imports torch at the top, so import this module through `torch.load` only. The exporter names
ONNX values after the nodes of the same fx graph, so layers of both join by name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from vklab.base.endings import one_line
from vklab.errors import ModelError

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def outputs(module: torch.nn.Module, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tensors that a module returns, computed in float64, in their order.

    Args:
        module: a module in eval mode; it is not changed.
        args: arrays in the order of its forward.
    """
    with torch.no_grad():
        made = copy.deepcopy(module).double()(*map(_wide, args))
    return [array_of(leaf) for leaf in _pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]


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
        raise ModelError(
            f"torch.export cannot capture {type(module).__name__}: {one_line(error)}"
        ) from error


def alone(
    program: Any, args: Sequence[np.ndarray], values: Mapping[str, np.ndarray], compute: str,
    weights: str = "",
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the value of every fx node by name, each node fed with given values.

    Args:
        program: what `capture` returned; it is not changed, and serves for any dtype.
        args: arrays in the order of the module's forward.
        values: values to feed by fx name; a node whose value is missing passes its own on.
        compute: dtype of the computation; float32 for one that torch has no tensors of.
        weights: dtype to which the weights are rounded first; "" for none.

    Raises ModelError with torch's own reason, as for an operator that lacks the dtype.
    """
    kinds = getattr(torch, compute, torch.float32), getattr(torch, weights, None)
    runner = _Runner(program, *kinds, values)
    try:
        return runner.everything(args)
    except Exception as error:  # torch's errors share no other base class
        raise ModelError(f"torch cannot run a layer in {compute}: {one_line(error)}") from error


class Watched(torch.fx.Interpreter):
    """Interpreter of an exported program that keeps the value of each operator.

    Args:
        program: a torch.export.ExportedProgram.
    """

    def __init__(self, program: Any) -> None:
        super().__init__(program.graph_module)
        self._program = program
        self.by_node: dict[str, np.ndarray] = {}  # by the name of the fx node

    def run_program(self, given: Sequence[torch.Tensor]) -> Any:
        """Run the program on the tensors of its inputs, and return what it returns."""
        stored = {**self._program.state_dict, **self._program.constants}
        rest = iter(given)
        fed = [
            self.weight(stored[spec.target]) if spec.target in stored else next(rest)
            for spec in self._program.graph_signature.input_specs
        ]
        with torch.no_grad():
            return self.run(*fed)

    def weight(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a stored tensor as the program reads it."""
        return tensor

    def run_node(self, node: torch.fx.Node) -> Any:
        """Run one node, and keep its value."""
        made = super().run_node(node)
        if isinstance(made, torch.Tensor) and node.op == "call_function":
            self.by_node[node.name] = array_of(made)
        return made


class _Runner(Watched):
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
        super().__init__(program)
        self._compute, self._weights, self._values = compute, weights, values or {}

    def everything(self, args: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return every value by the name of its fx node."""
        self.run_program([*map(self._tensor, args)])
        return self.by_node

    def weight(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a stored tensor in the one dtype, rounded to that of weights first."""
        is_rounded = self._weights is not None and tensor.is_floating_point()
        cast: torch.Tensor = self._cast(tensor.to(self._weights) if is_rounded else tensor)
        return cast

    def run_node(self, node: torch.fx.Node) -> Any:
        """Run one node, keep its value, and return the given value in its place if there is one."""
        made = super().run_node(node)
        if node.name not in self.by_node or node.name not in self._values:
            return made
        return self._tensor(self._values[node.name]) if made.is_floating_point() else made

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


def _wide(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array))
    return tensor.double() if tensor.is_floating_point() else tensor


def _like(module: torch.nn.Module, array: np.ndarray) -> torch.Tensor:
    """Return an argument on the module's device, floats in the dtype of its weights."""
    weights = [tensor for tensor in module.parameters() if tensor.is_floating_point()]
    first = weights[0] if weights else torch.empty(0)
    tensor = torch.from_numpy(np.array(array)).to(first.device)
    return tensor.to(first.dtype) if tensor.is_floating_point() else tensor


def set_precision(dtype: str) -> None:
    """Let products of this process round their factors to TF32 for "tfloat32", and for it alone."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tfloat32"
    torch.backends.cudnn.allow_tf32 = dtype == "tfloat32"


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array on the host; bfloat16 is widened to float32."""
    tensor = tensor.detach().cpu()
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
