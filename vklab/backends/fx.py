"""A torch module in float64: its outputs, and the values of its layers by their fx names.

Imports torch at the top, so import this module through `oracle.load_fx` only. The exporter names
ONNX values after the nodes of the same fx graph, so layers of both join by name.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from vklab.errors import ModelError

__all__ = ["capture", "outputs", "values"]

NARROW = (torch.float32, torch.float16, torch.bfloat16)


def outputs(module: torch.nn.Module, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tensors that a module returns, computed in float64, in their order.

    Args:
        module: a module in eval mode; it is not changed.
        args: arrays in the order of its forward.
    """
    with torch.no_grad():
        made = copy.deepcopy(module).double()(*_tensors(args))
    return [_array(leaf) for leaf in _pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]


def values(module: torch.nn.Module, args: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the value of every fx node in float64 by the node's name, as the exporter names it.

    Args:
        module: a module in eval mode; it is not changed.
        args: arrays in the order of its forward.
    """
    return _Wide(capture(module, args)).everything(args)


def capture(module: torch.nn.Module, args: Sequence[np.ndarray]) -> Any:
    """Return the torch.export.ExportedProgram of a module, with the exporter's names.

    Args:
        module: a module in eval mode.
        args: arrays in the order of its forward.

    Raises ModelError with torch's own reason.
    """
    try:
        given = tuple(torch.from_numpy(np.array(array)) for array in args)
        with torch.no_grad():
            program = torch.export.export(module, given, strict=False)
            return program.run_decompositions({})
    except Exception as error:  # torch's errors share no other base class
        said = " ".join(str(error).split())[:300]
        raise ModelError(f"torch.export cannot capture {type(module).__name__}: {said}"
                         ) from error  # fmt: skip


class _Wide(torch.fx.Interpreter):
    """Runs an exported program with float64 in place of every narrower float."""

    def __init__(self, program: Any) -> None:
        super().__init__(program.graph_module)
        self._program = program
        self._found: dict[str, np.ndarray] = {}

    def everything(self, args: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return every value by the name of its fx node."""
        stored = {**self._program.state_dict, **self._program.constants}
        fed, given = [], iter(_tensors(args))
        for spec in self._program.graph_signature.input_specs:
            target = spec.target
            fed.append(_wide(stored[target]) if target in stored else next(given))
        with torch.no_grad():
            self.run(*fed)
        return self._found

    def run_node(self, node: torch.fx.Node) -> Any:
        """Run one node, and keep its value."""
        made = super().run_node(node)
        if isinstance(made, torch.Tensor) and node.op == "call_function":
            self._found[node.name] = _array(made)
        return made

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator, with float64 where the program asks for a narrower float."""
        args, kwargs = _pytree.tree_map(_wide, (args, kwargs))
        return super().call_function(target, args, kwargs)


def _tensors(args: Sequence[np.ndarray]) -> list[Any]:
    return [_wide(torch.from_numpy(np.array(array))) for array in args]


def _wide(leaf: Any) -> Any:
    """Return a tensor or a dtype as float64 if it is a narrower float."""
    if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW:
        return leaf.detach().double()
    return torch.float64 if leaf in NARROW and isinstance(leaf, torch.dtype) else leaf


def _array(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array
