"""fuse_rotary: x * cos + (-x2, x1) * sin, where x1 and x2 are x's halves, is one rotary embedding.

The tables are as wide as x, as PyTorch's exporters write them, and need not repeat their half.
"""

from __future__ import annotations

from collections.abc import Iterator

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import Step, Value
from vklab.ops import inputs

__all__ = ["fuse_rotary"]

X = Value("x")
HALVES = Step("Concat", (
    Step("Neg", (Step("Slice", (X,), "second"),)), Step("Slice", (X,), "first"),
), "turned")  # fmt: skip
FORM = Step("Add", (Step("Mul", (X, Value("cos"))), Step("Mul", (HALVES, Value("sin")))))


def fuse_rotary(graph: Graph) -> Graph:
    """Replace what a rotary embedding is made of by one node."""
    return matching.replaced(graph, _build)


def _build(
    search: matching.Search, root: Node
) -> Iterator[tuple[matching.Found, matching.Built]]:
    for found in search.find(FORM, root.outputs[0]) if root.op_type == "Add" else ():
        dims = search.dims(found.values["x"])
        half, odd = divmod(dims[-1], 2)
        starts = [_start(search, found.named[name], half) for name in ("first", "second")]
        last = found.named["turned"].attributes["axis"] % len(dims) == len(dims) - 1
        if last and not odd and starts == [0, half]:
            read = tuple(found.values[name] for name in ("x", "cos", "sin"))
            node = Node(root.name, "RotaryEmbedding", read, root.outputs, {}, "vklab", 1)
            yield found, ((node,), {})


def _start(search: matching.Search, node: Node, size: int) -> int | None:
    """Return where a slice of the last axis starts; None if it is not of this size, or another."""
    before, after = search.dims(node.inputs[0]), search.dims(node.outputs[0])
    starts, axes, steps = (_integers(search, node, number) for number in (1, 3, 4))
    along = [axis % len(before) for axis in axes or range(len(starts))]
    if (*before[:-1], size) != after or along[-1:] != [len(before) - 1] or set(steps) - {1}:
        return None
    return starts[-1] % before[-1]


def _integers(search: matching.Search, node: Node, number: int) -> tuple[int, ...]:
    name = node.inputs[number] if number < len(node.inputs) else ""
    return inputs.known_integers(search.info(name), "a slice") if name else ()
