"""Graphs that Dynamo captured, as modules to export, and the properties that ONNX cannot express.

Visited by lab 09.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from vklab.apps.pytorch import exporter, tensors
from vklab.errors import ModelError


class Positional(torch.nn.Module):
    """A graph as a module that takes only tensors and returns only tensors."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        tensor_numbers: Sequence[int],
        sources: Sequence[tuple[int, int] | None],
        args: Sequence[Any],
        is_functional: bool,
        note: Callable[[list[Any]], None],
    ) -> None:
        """Wrap a graph.

        Args:
            graph: the graph that Dynamo captured.
            tensor_numbers: numbers of the graph's inputs that are tensors.
            sources: for each input, the tensor and the axis whose size it is, or None.
            args: an example of every input; those that are not tensors become constants.
            is_functional: the graph mutates no input; clone outputs that are inputs or repeated.
            note: receives the kind of each output: (dtype, device), int, or None.
        """
        super().__init__()
        self.graph, self.tensor_numbers, self.sources = graph, tensor_numbers, sources
        self.numbers = [None if isinstance(value, torch.Tensor) else value for value in args]
        self.is_functional = is_functional
        self.note = note  # a function, because torch.export undoes assignments of forward

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the graph, pass the kinds of its outputs to `note`, and return its tensors."""
        args: list[Any] = list(self.numbers)
        for number, tensor in zip(self.tensor_numbers, given, strict=True):
            args[number] = tensor
        for number, source in enumerate(self.sources):
            if source:
                args[number] = given[source[0]].shape[source[1]]
        outputs: list[torch.Tensor] = []
        kinds: list[Any] = []
        for value in self.graph(*args):
            if isinstance(value, (int, torch.SymInt)):
                kinds.append(int)
                value = torch.scalar_tensor(value, dtype=torch.int64)
            elif isinstance(value, torch.Tensor):
                tensors.require_dense(value)
                kinds.append((value.dtype, value.device))
                if self.is_functional and any(value is other for other in (*given, *outputs)):
                    value = value.clone()  # every output of an ONNX graph is a separate value
            elif value is None:
                kinds.append(None)
                continue
            else:
                raise ModelError(
                    f"the graph returns a {type(value).__name__}; only tensors, "
                    "whole numbers and None can be returned"
                )
            outputs.append(value)
        if not outputs:
            raise ModelError("the graph returns no tensors")
        self.note(kinds)
        return tuple(outputs)


def is_pure(exported: Any) -> bool:
    """Tell whether a graph mutates no input and returns no view.

    Raises ModelError if it draws random numbers.
    """
    for node in exported.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            # Attention and LSTMs have that tag for a dropout that is mostly off.
            dropout = [exporter.argument(node, name) for name in ("dropout_p", "train")]
            if any(dropout) or dropout == [None, None]:
                raise ModelError(
                    f"{node.target} draws random numbers from PyTorch's generator, "
                    "which vklab does not have"
                )
    kinds = {spec.kind.name for spec in exported.graph_signature.output_specs}
    [output] = exported.graph.find_nodes(op="output")
    roots = [_root(node) for node in output.args[0] if isinstance(node, torch.fx.Node)]
    is_view = any(node.op == "placeholder" for node in roots) or len(set(roots)) < len(roots)
    return not (is_view or any("MUTATION" in kind for kind in kinds))


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """Return the value whose memory a value may share, according to the operators' schemas."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        shares = schema is not None and any(value.alias_info for value in schema.returns)
        if not (shares or node.target is operator.getitem):
            break
        node = node.args[0]
    return node


def open_dims(fake: torch.Tensor) -> list[int]:
    """Return the axes whose size Dynamo left open."""
    return [
        axis
        for axis, dim in enumerate(fake.shape)
        if isinstance(dim, torch.SymInt) and dim.node.maybe_as_int() is None
    ]


def concrete(value: Any) -> Any:
    """Return an example argument for a value: a number or an empty tensor without symbols."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint)
    if isinstance(value, torch._subclasses.FakeTensor):
        shape = [concrete(dim) for dim in value.shape]
        return torch.empty(shape, dtype=value.dtype, device=value.device)
    return value.detach() if isinstance(value, torch.Tensor) else value
