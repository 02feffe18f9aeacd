"""Pattern matching: describe trees of nodes, find them in a graph and replace them.

A pattern is a tree whose root makes the result. It matches only if nodes outside read no inner
value; a replacement must keep dtype and shape. Each fusion defines its own patterns.
Visited by lab 10.
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

# Exporters may swap the operands of these.
COMMUTATIVE = frozenset({"Add", "Mul"})


@dataclass(frozen=True)
class AnyValue:
    """Any value; two uses of one name must match the same value."""

    name: str


@dataclass(frozen=True)
class KnownNumber:
    """A constant of one element, equal to `value` within rounding.

    Without `value` it matches any such constant; two uses of one name must match equal numbers.
    """

    value: float | None = None
    name: str = ""


@dataclass(frozen=True)
class PatternStep:
    """A node of one of the operators in `op_types` ("A|B") whose first inputs match `arguments`.

    Further inputs must be constants unless `more` is set. `Match.named` holds the node by `name`.
    """

    op_types: str
    arguments: tuple[Pattern, ...]
    name: str = ""
    more: bool = False


@dataclass(frozen=True)
class Either:
    """Alternatives, tried in order until the whole pattern matches."""

    patterns: tuple[Pattern, ...]


Pattern = AnyValue | KnownNumber | PatternStep | Either


@functools.cache
def times(*factors: Pattern) -> Pattern:
    """Return a pattern for the product of factors, in every order and bracketing."""
    if len(factors) == 1:
        return factors[0]
    first, *rest = factors
    products = []
    for chosen in range(2 ** len(rest) - 1):  # bit i: factor i shares the first one's bracket
        left = [factor for i, factor in enumerate(rest) if chosen >> i & 1]
        right = [factor for i, factor in enumerate(rest) if not chosen >> i & 1]
        products.append(PatternStep("Mul", (times(first, *left), times(*right))))
    return Either(tuple(dict.fromkeys(products)))


@dataclass(frozen=True)
class Match:
    """Values, numbers and nodes of a graph that match a pattern, by their names in the pattern."""

    values: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()


class PatternSearch:
    """An index of a graph by the maker and the readers of each value, searched for patterns.

    Source: Aho, Lam, Sethi and Ullman 2006, "Compilers", section 8.9 (tree rewriting)
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers = graph.readers()
        self.makers = {name: node for node in graph.nodes for name in node.outputs if name}
        self._outputs = frozenset(graph.outputs)

    def info(self, name: str) -> TensorInfo:
        """Return the dtype, shape and constant of a value."""
        return self.graph.infos[name]

    def dims(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.info(name).dims

    def find(self, pattern: Pattern, name: str) -> Iterator[Match]:
        """Yield every match that ends in a value and whose inner values have no other readers."""
        for match in self._matches(pattern, name, Match()):
            if self._is_closed(match, name):
                yield match

    def _is_closed(self, match: Match, name: str) -> bool:
        inside = {id(node) for node in match.nodes}
        for node in match.nodes:
            for made in filter(None, node.outputs):
                readers = self.readers.get(made, [])
                if made != name and (
                    made in self._outputs or not all(id(reader) in inside for reader in readers)
                ):
                    return False
        return True

    def _matches(self, pattern: Pattern, name: str, so_far: Match) -> Iterator[Match]:
        if isinstance(pattern, Either):
            for option in pattern.patterns:
                yield from self._matches(option, name, so_far)
            return
        if isinstance(pattern, KnownNumber):
            yield from self._number_matches(pattern, name, so_far)
            return
        cast = self.makers.get(name)
        if cast is not None and self._is_cast(cast):
            further = replace(so_far, nodes=(*so_far.nodes, cast))
            yield from self._matches(pattern, cast.inputs[0], further)
        if isinstance(pattern, AnyValue):
            if so_far.values.get(pattern.name, name) == name:
                yield replace(so_far, values={**so_far.values, pattern.name: name})
        elif cast is not None:
            yield from self._step_matches(pattern, cast, so_far)

    def _is_cast(self, node: Node) -> bool:
        """Tell whether a node at most rounds its input to another float dtype."""
        return (
            node.op_type in ("Cast", "Identity")
            and not node.domain
            and all(self.info(name).dtype in FLOATS for name in (*node.inputs, *node.outputs))
        )

    def _number_matches(self, pattern: KnownNumber, name: str, so_far: Match) -> Iterator[Match]:
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

    def _step_matches(self, step: PatternStep, node: Node, so_far: Match) -> Iterator[Match]:
        named = so_far.named.get(step.name) if step.name else None
        if (
            node.domain
            or node.op_type not in step.op_types.split("|")
            or (named is not None and named is not node)
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
            yield from self._all_matches(tuple(zip(step.arguments, order, strict=True)), so_far)

    def _all_matches(self, pairs: Sequence[tuple[Pattern, str]], so_far: Match) -> Iterator[Match]:
        if not pairs:
            yield so_far
            return
        (pattern, name), *rest = pairs
        for match in self._matches(pattern, name, so_far) if name else ():
            yield from self._all_matches(rest, match)


Built = tuple[Sequence[Node], Mapping[str, TensorInfo]]
Build = Callable[[PatternSearch, Node], Iterator[tuple[Match, Built]]]


def replaced(graph: Graph, build: Build) -> Graph:
    """Replace matches of patterns by new nodes, starting at the end of the graph.

    Args:
        graph: a graph whose values have infos.
        build: yields each match that ends in a given node, with its replacement: nodes, of which
            the last makes the same outputs, and their new constants.
    """
    search = PatternSearch(graph)
    gone: set[int] = set()
    places: dict[int, Sequence[Node]] = {}
    infos, constants = dict(graph.infos), dict(graph.initializers)
    for root in reversed(graph.nodes):
        for match, (nodes, made) in build(search, root) if id(root) not in gone else ():
            inside = {id(node) for node in match.nodes}
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
    """Return infos with new nodes' outputs added; None if the root's outputs would change."""
    before = {name: infos[name] for name in root.outputs if name}
    for node in nodes:
        try:
            result, outputs = shapes.apply_node(graph, node, infos)
        except VklabError:
            return None
        if not isinstance(result, Result):
            return None
        infos.update({info.name: info for info in outputs})
    same = all(
        (infos[name].dtype, infos[name].shape) == (info.dtype, info.shape)
        for name, info in before.items()
    )
    return infos if same else None
