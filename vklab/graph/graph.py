"""Graph and Node: an ONNX graph as frozen data, in an order in which it can run.

Knows nothing of files (`onnx_import`) and computes no shapes (`shapes`). Visited by lab 09.
"""

from __future__ import annotations

import functools
import graphlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from vklab import draw
from vklab.errors import ModelError
from vklab.ops import registry
from vklab.types import TensorInfo

__all__ = ["Graph", "Node", "topological_order", "without_unread_outputs"]


@dataclass(frozen=True)
class Node:
    """One use of an operator: its inputs and outputs by value name ('' where left out).

    `opset` is 0 for the graph's own, else that of the body of a function that the node is from.
    `bodies` are the graphs among the attributes of If, Loop and Scan.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = 0
    bodies: Mapping[str, Graph] = field(default_factory=dict)

    @property
    def qualified_type(self) -> str:
        """Return the op_type with its domain, unless that is ONNX's own."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @functools.cached_property
    def reads(self) -> tuple[str, ...]:
        """Return the values it needs: its inputs, and what its bodies capture."""
        captured = (name for body in self.bodies.values() for name in body.captures)
        return tuple(dict.fromkeys([*filter(None, self.inputs), *captured]))

    def __str__(self) -> str:
        inputs = ", ".join(self.inputs)
        return f"{self.name}: {', '.join(self.outputs)} = {self.qualified_type}({inputs})"


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order, with inputs, outputs, initializers and what is known of values.

    `infos` holds dtype and shape of every value once `shapes.infer` has run; before that only of
    inputs and initializers. Initializers are infos that carry their constant. A body's `captures`
    are the values around it that it reads. `answers` is for `shapes.apply_node`.
    """

    name: str
    opset: int
    nodes: tuple[Node, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, TensorInfo]
    infos: Mapping[str, TensorInfo] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    answers: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def with_nodes(self, nodes: Iterable[Node], **changes: Any) -> Graph:
        """Return a copy with other nodes, without the initializers that nothing reads any more."""
        kept = tuple(nodes)
        changed = replace(self, nodes=kept, **changes)
        used = {name for node in kept for name in node.reads} | set(changed.outputs)
        initializers = {k: v for k, v in changed.initializers.items() if k in used}
        return replace(changed, initializers=initializers)

    def opset_of(self, node: Node) -> int:
        """Return the version of its domain's operators that a node means.

        A domain that is in use and not imported is of version 1.
        """
        return node.opset or self.opsets.get(node.domain, 1 if node.domain else self.opset)

    def readers(self) -> dict[str, list[Node]]:
        """Return, for each value, the nodes that read it."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.reads:
                found.setdefault(name, []).append(node)
        return found

    def __str__(self) -> str:
        counts = Counter(node.qualified_type for node in self.nodes)
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        return f"graph {self.name!r}: {len(self.nodes)} nodes ({kinds})"

    def _repr_html_(self) -> str:
        rows = [
            (node.name, node.qualified_type, ", ".join(node.inputs),
             ", ".join(str(self.infos.get(name, name)) for name in node.outputs))
            for node in self.nodes
        ]  # fmt: skip
        return draw.table_html(str(self), ("node", "operator", "inputs", "outputs"), rows)


def topological_order(nodes: Iterable[Node], known: Iterable[str]) -> tuple[Node, ...]:
    """Return nodes so that each comes after those it reads from, else in the given order.

    Raises ModelError for a value that nothing makes, that two nodes make, or for a cycle.
    """
    given = list(nodes)
    available = set(known)
    maker: dict[str, int] = {}
    for number, node in enumerate(given):
        for name in filter(None, node.outputs):
            if name in maker or name in available:
                raise ModelError(f"node {node.name!r}: value {name!r} is already defined elsewhere")
            maker[name] = number
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    for number, node in enumerate(given):
        for name in node.reads:
            if name not in maker and name not in available:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) reads {name!r}, which no node makes and "
                    "which is neither a graph input nor an initializer"
                )
        sorter.add(number, *(maker[name] for name in node.reads if name in maker))
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]  # its first node is named again at the end
        first = given[min(cycle)]
        raise ModelError(
            f"node {first.name!r} ({first.op_type}) is in a cycle of {len(cycle) - 1} nodes"
        ) from error
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return tuple(given[number] for number in order)


def without_unread_outputs(
    nodes: Sequence[Node], outputs: Sequence[str]
) -> tuple[Node, ...]:
    """Leave out trailing outputs that nobody reads: exporters name MaxPool's indices and more.

    Only where kernels make them: other runtimes may insist on every output.
    """
    read = {name for node in nodes for name in node.reads} | set(outputs)

    def trimmed(node: Node) -> Node:
        is_ours = (node.domain, node.op_type) in registry.OPERATORS
        if node.op_type == "Split" or not is_ours:  # Split's outputs decide what they are
            return node
        kept = list(node.outputs)
        while len(kept) > 1 and kept[-1] not in read:
            kept.pop()
        return node if len(kept) == len(node.outputs) else replace(node, outputs=tuple(kept))

    return tuple(trimmed(node) for node in nodes)
