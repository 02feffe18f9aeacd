"""Patterns of nodes: what they look like, where a graph has them, and one node in their place.

A pattern is a tree read from its result upwards. It is found only where nothing else reads what
lies inside, and replaced only by nodes that make the same dtype and shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vklab.errors import VklabError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.ops.dtypes import FLOATS
from vklab.ops.registry import Result
from vklab.types import TensorInfo

__all__ = [
    "Either", "Found", "Number", "Pattern", "Search", "Step", "Value", "replaced", "times",
]  # fmt: skip

# Exporters may swap the operands of these.
COMMUTATIVE = frozenset({"Add", "Mul"})


@dataclass(frozen=True)
class Value:
    """Any value; where the name stands twice, the same value."""

    name: str


@dataclass(frozen=True)
class Number:
    """One known number, alike within rounding; without `value` any, by its name."""

    value: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Step:
    """A node of one of the operators "A|B", whose first inputs look like `arguments`.

    Further inputs must be known, unless there may be `more`. With `name`, the node is found by it.
    """

    op_types: str
    arguments: tuple[Pattern, ...]
    name: str = ""
    more: bool = False


@dataclass(frozen=True)
class Either:
    """The first of several patterns with which all the rest is found too."""

    patterns: tuple[Pattern, ...]


Pattern = Value | Number | Step | Either


@functools.cache
def times(*factors: Pattern) -> Pattern:
    """Return the product of patterns, in every order and however it is put in brackets."""
    if len(factors) == 1:
        return factors[0]
    first, *rest = factors
    products = []
    for chosen in range(2 ** len(rest) - 1):  # which others stand beside the first
        left = [factor for i, factor in enumerate(rest) if chosen >> i & 1]
        right = [factor for i, factor in enumerate(rest) if not chosen >> i & 1]
        products.append(Step("Mul", (times(first, *left), times(*right))))
    return Either(tuple(dict.fromkeys(products)))


@dataclass(frozen=True)
class Found:
    """Where a pattern was found: its values, numbers and nodes by their names in the pattern."""

    values: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()


class Search:
    """A graph by who makes and who reads each value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers = graph.readers()
        self.makers = {name: node for node in graph.nodes for name in node.outputs if name}
        self._outputs = frozenset(graph.outputs)

    def info(self, name: str) -> TensorInfo:
        """Return what is known of a value."""
        return self.graph.infos[name]

    def dims(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.info(name).dims

    def find(self, pattern: Pattern, name: str) -> Iterator[Found]:
        """Yield the ways in which a value looks like a pattern, with nothing inside read outside.
        """
        for found in self._match(pattern, name, Found()):
            if self._is_closed(found, name):
                yield found

    def _is_closed(self, found: Found, name: str) -> bool:
        inside = {id(node) for node in found.nodes}
        for node in found.nodes:
            for made in filter(None, node.outputs):
                readers = self.readers.get(made, [])
                if made != name and (
                    made in self._outputs or not all(id(reader) in inside for reader in readers)
                ):
                    return False
        return True

    def _match(self, pattern: Pattern, name: str, so_far: Found) -> Iterator[Found]:
        if isinstance(pattern, Either):
            for option in pattern.patterns:
                yield from self._match(option, name, so_far)
            return
        if isinstance(pattern, Number):
            yield from self._match_number(pattern, name, so_far)
            return
        cast = self.makers.get(name)
        if cast is not None and self._is_cast(cast):
            further = replace(so_far, nodes=(*so_far.nodes, cast))
            yield from self._match(pattern, cast.inputs[0], further)
        if isinstance(pattern, Value):
            if so_far.values.get(pattern.name, name) == name:
                yield replace(so_far, values={**so_far.values, pattern.name: name})
        elif cast is not None:
            yield from self._match_step(pattern, cast, so_far)

    def _is_cast(self, node: Node) -> bool:
        """Tell whether a node only rounds, if it does anything."""
        return node.op_type in ("Cast", "Identity") and not node.domain and all(
            self.info(name).dtype in FLOATS for name in (*node.inputs, *node.outputs)
        )

    def _match_number(self, pattern: Number, name: str, so_far: Found) -> Iterator[Found]:
        constant = self.info(name).constant if name in self.graph.infos else None
        if constant is None or constant.size != 1 or self.info(name).dtype not in FLOATS:
            return
        number = float(constant.ravel()[0])
        if pattern.value is not None:
            digits = 4 * 2.0 ** -{"float16": 10, "bfloat16": 7}.get(self.info(name).dtype, 23)
            if not abs(number - pattern.value) <= digits * abs(pattern.value):
                return
        if so_far.numbers.get(pattern.name, number) == number:
            named = {pattern.name: number} if pattern.name else {}
            yield replace(so_far, numbers={**so_far.numbers, **named})

    def _match_step(self, step: Step, node: Node, so_far: Found) -> Iterator[Found]:
        named = so_far.named.get(step.name) if step.name else None
        if node.domain or node.op_type not in step.op_types.split("|") or (
            named is not None and named is not node
        ):
            return
        count = len(step.arguments)
        inputs = list(node.inputs[:count])
        others = [] if step.more else [name for name in node.inputs[count:] if name]
        if len(inputs) < count or any(self.info(name).constant is None for name in others):
            return
        so_far = replace(so_far, nodes=(*so_far.nodes, node))
        if step.name:
            so_far = replace(so_far, named={**so_far.named, step.name: node})
        orders = [inputs]
        if node.op_type in COMMUTATIVE and count == 2:
            orders.append(inputs[::-1])
        for order in orders:
            yield from self._match_all(tuple(zip(step.arguments, order, strict=True)), so_far)

    def _match_all(
        self, pairs: Sequence[tuple[Pattern, str]], so_far: Found
    ) -> Iterator[Found]:
        if not pairs:
            yield so_far
            return
        (pattern, name), *rest = pairs
        for found in self._match(pattern, name, so_far) if name else ():
            yield from self._match_all(rest, found)


Built = tuple[Sequence[Node], Mapping[str, TensorInfo]]
Build = Callable[[Search, Node], Iterator[tuple[Found, Built]]]


def replaced(graph: Graph, build: Build) -> Graph:
    """Put new nodes in the place of patterns, the largest first.

    Args:
        build: yields, for the node that makes a pattern's result, what was found there and the
            nodes for it, the last of which makes that result, with their new constants.
    """
    search = Search(graph)
    gone: set[int] = set()
    places: dict[int, Sequence[Node]] = {}
    infos, constants = dict(graph.infos), dict(graph.initializers)
    for root in reversed(graph.nodes):
        for found, (nodes, made) in build(search, root) if id(root) not in gone else ():
            inside = {id(node) for node in found.nodes}
            known = None if inside & gone else _applied(graph, nodes, {**infos, **made}, root)
            if known is not None:
                gone |= inside
                places[id(root)] = nodes
                infos, constants = known, {**constants, **made}
                break
    if not places:
        return graph
    kept = [
        node
        for old in graph.nodes
        for node in places.get(id(old), () if id(old) in gone else (old,))
    ]
    return graph.with_nodes(kept, infos=infos, initializers=constants)


def _applied(
    graph: Graph, nodes: Sequence[Node], infos: dict[str, TensorInfo], root: Node
) -> dict[str, TensorInfo] | None:
    """Return all infos with those that new nodes make; None unless they end as the old one did."""
    before = {name: infos[name] for name in root.outputs if name}
    for node in nodes:
        try:
            result, outputs = shapes.apply_node(graph, node, infos)
        except VklabError:
            return None
        if not isinstance(result, Result):
            return None
        infos.update({info.name: info for info in outputs})
    same = all((infos[name].dtype, infos[name].shape) == (info.dtype, info.shape)
               for name, info in before.items())  # fmt: skip
    return infos if same else None
