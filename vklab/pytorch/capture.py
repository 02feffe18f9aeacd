"""What Dynamo captured, as a module that can be exported, and what ONNX could not say of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from vklab.errors import ModelError
from vklab.pytorch import exporter, tensors

__all__ = ["Positional", "concrete", "is_pure", "open_dims"]


class Positional(torch.nn.Module):
    """A graph as a module of its tensors alone, which returns tensors alone."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        places: Sequence[int],
        sources: Sequence[tuple[int, int] | None],
        args: Sequence[Any],
        is_functional: bool,
        note: Callable[[list[Any]], None],
    ) -> None:
        super().__init__()
        self.graph, self.places, self.sources = graph, places, sources
        self.numbers = [None if isinstance(value, torch.Tensor) else value for value in args]
        self.is_functional = is_functional
        self.note = note  # torch.export takes back what forward sets

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the graph and note what its outputs are."""
        args: list[Any] = list(self.numbers)
        for place, tensor in zip(self.places, given, strict=True):
            args[place] = tensor
        for place, source in enumerate(self.sources):
            if source:
                args[place] = given[source[0]].shape[source[1]]
        found: list[torch.Tensor] = []
        kinds: list[Any] = []
        for value in self.graph(*args):
            if isinstance(value, (int, torch.SymInt)):
                kinds.append(int)
                value = torch.scalar_tensor(value, dtype=torch.int64)
            elif isinstance(value, torch.Tensor):
                tensors.require_dense(value)
                kinds.append((value.dtype, value.device))
                if self.is_functional and any(value is other for other in (*given, *found)):
                    value = value.clone()  # outputs of ONNX are values of their own
            elif value is None:
                kinds.append(None)
                continue
            else:
                raise ModelError(f"it returns a {type(value).__name__}")
            found.append(value)
        if not found:
            raise ModelError("it returns no tensors")
        self.note(kinds)
        return tuple(found)


def is_pure(exported: Any) -> bool:
    """Tell whether outputs are all that a graph makes; ModelError if chance has a part in it."""
    for node in exported.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            # Attention and LSTMs bear that tag for a dropout that they mostly do without.
            chance = [exporter.argument(node, name) for name in ("dropout_p", "train")]
            if any(chance) or chance == [None, None]:
                raise ModelError(f"{node.target} draws random numbers, and PyTorch's generator is "
                                 "not known here")  # fmt: skip
    kinds = {spec.kind.name for spec in exported.graph_signature.output_specs}
    [output] = exported.graph.find_nodes(op="output")
    roots = [_root(node) for node in output.args[0] if isinstance(node, torch.fx.Node)]
    is_view = any(node.op == "placeholder" for node in roots) or len(set(roots)) < len(roots)
    return not (is_view or any("MUTATION" in kind for kind in kinds))


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """Return the value whose memory a value may share, as the schemas of operators tell."""
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
    """Return a value without symbols: an example of what a graph will be called with."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint)
    if isinstance(value, torch._subclasses.FakeTensor):
        shape = [concrete(dim) for dim in value.shape]
        return torch.empty(shape, dtype=value.dtype, device=value.device)
    return value.detach() if isinstance(value, torch.Tensor) else value
