"""Graph and Node: an ONNX graph as frozen data, its nodes in topological order.

Reads no files (`onnx_import`) and computes no shapes (`shapes`). Visited by lab 09.
"""

from __future__ import annotations

import copyreg
import functools
import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any

from vklab.base import draw
from vklab.base.protocols import Content
from vklab.errors import ModelError
from vklab.ops import registry
from vklab.types import TensorInfo

# Operators that draw random numbers: two equal nodes are two draws, and none is a constant.
RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
                    "RandomUniform", "RandomUniformLike", "Dropout"})  # fmt: skip


def _read_only(given: Mapping[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(dict(given))


# A graph can be pickled and copied, with its initializers.
copyreg.pickle(MappingProxyType, lambda given: (_read_only, (dict(given),)))


@dataclass(frozen=True)
class Node:
    """One use of an operator: its inputs and outputs by value name ('' where left out).

    `opset` is 0 for the graph's own opset, else the opset of the function body the node comes from.
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
        """Return the values that the node needs: its inputs and those its bodies capture."""
        captured = (name for body in self.bodies.values() for name in body.captures)
        return tuple(dict.fromkeys([*filter(None, self.inputs), *captured]))

    def __str__(self) -> str:
        inputs = ", ".join(self.inputs)
        return f"{self.name}: {', '.join(self.outputs)} = {self.qualified_type}({inputs})"


@dataclass(frozen=True, eq=False)
class Graph(Content):
    """Nodes in topological order, with inputs, outputs, initializers and infos of values.

    `infos` holds dtype and shape of values: in an imported graph of inputs and initializers, and
    the declared dtypes of outputs; in a chunk's graph, which `plan.partition` has made, of every
    value. Initializers are infos with a constant; their mapping cannot be changed. `captures` are
    the values of an outer graph that a body reads. `defaults` declares the initializers that are
    inputs, too: a run may override them, but not one of a compiled model.
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
    defaults: tuple[TensorInfo, ...] = field(default=(), compare=False)  # not saved

    def __post_init__(self) -> None:
        if type(self.initializers) is not MappingProxyType:
            object.__setattr__(self, "initializers", _read_only(self.initializers))

    def with_nodes(self, nodes: Iterable[Node], **changes: Any) -> Graph:
        """Return a copy with other nodes, without the initializers that these do not read."""
        kept = tuple(nodes)
        changed = replace(self, nodes=kept, **changes)
        used = {name for node in kept for name in node.reads} | set(changed.outputs)
        initializers = {k: v for k, v in changed.initializers.items() if k in used}
        return replace(changed, initializers=initializers)

    def names(self) -> Iterator[str]:
        """Yield the names of all nodes and values, those of bodies included."""
        yield from (*self.initializers, *(info.name for info in self.inputs), *self.outputs)
        for node in self.nodes:
            yield from (node.name, *node.inputs, *node.outputs)
            for body in node.bodies.values():
                yield from body.names()

    def opset_of(self, node: Node) -> int:
        """Return the opset version of a node's domain; 1 for a domain that is not imported."""
        return node.opset or self.opsets.get(node.domain, 1 if node.domain else self.opset)

    def readers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value."""
        nodes: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.reads:
                nodes.setdefault(name, []).append(node)
        return nodes

    def __str__(self) -> str:
        counts = Counter(node.qualified_type for node in self.nodes)
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        return f"graph {self.name!r}: {len(self.nodes)} nodes ({kinds})"

    def _repr_html_(self) -> str:
        rows = [
            (
                node.name,
                node.qualified_type,
                ", ".join(node.inputs),
                ", ".join(str(self.infos.get(name, name)) for name in node.outputs),
            )
            for node in self.nodes
        ]
        return draw.table_html(str(self), ("node", "operator", "inputs", "outputs"), rows)


def topological_order(nodes: Iterable[Node], known: Iterable[str]) -> tuple[Node, ...]:
    """Return nodes so that each follows those it reads from, otherwise in the given order.

    Args:
        nodes: the nodes to sort.
        known: values that no node has to make: graph inputs, initializers, captured values.

    Raises ModelError for a value that no node makes or that two nodes make, and for a cycle.

    Source: Kahn 1962, "Topological sorting of large networks"
    """
    given = list(nodes)
    available = set(known)
    maker = _makers(given, available)
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


def _makers(nodes: Sequence[Node], known: set[str]) -> dict[str, int]:
    """Return the number of the node that makes each value."""
    maker: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in maker or name in known:
                raise ModelError(f"node {node.name!r}: value {name!r} is already defined elsewhere")
            maker[name] = number
    return maker


def without_unread_outputs(nodes: Sequence[Node], outputs: Sequence[str]) -> tuple[Node, ...]:
    """Return nodes without trailing outputs that no node reads, such as MaxPool's indices.

    Nodes without kernels here keep theirs: other runtimes may require every output.
    """
    read = {name for node in nodes for name in node.reads} | set(outputs)

    def trimmed(node: Node) -> Node:
        is_ours = (node.domain, node.op_type) in registry.OPERATORS
        if node.op_type == "Split" or not is_ours:  # Split's output count sets their sizes
            return node
        kept = list(node.outputs)
        while len(kept) > 1 and kept[-1] not in read:
            kept.pop()
        return node if len(kept) == len(node.outputs) else replace(node, outputs=tuple(kept))

    return tuple(trimmed(node) for node in nodes)
