"""fuse_rotary: replace x * cos + (-x2, x1) * sin, with x1 and x2 the halves of x, by one node.

The tables are as wide as x, as PyTorch exports them; their halves may differ.
Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterator

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import AnyValue, PatternStep
from vklab.ops import inputs

X = AnyValue("x")
HALVES = PatternStep(
    "Concat",
    (
        PatternStep("Neg", (PatternStep("Slice", (X,), "second"),)),
        PatternStep("Slice", (X,), "first"),
    ),
    "turned",
)
FORM = PatternStep(
    "Add",
    (
        PatternStep("Mul", (X, AnyValue("cos"))),
        PatternStep("Mul", (HALVES, AnyValue("sin"))),
    ),
)


def fuse_rotary(graph: Graph) -> Graph:
    """Replace each subgraph that computes a rotary embedding by one RotaryEmbedding node.

    Source: ONNX RotaryEmbedding-23; Su et al. 2021, "RoFormer"
    """
    return matching.replaced(graph, _build)


def _build(
    search: matching.PatternSearch, root: Node
) -> Iterator[tuple[matching.Match, matching.Built]]:
    for match in search.find(FORM, root.outputs[0]) if root.op_type == "Add" else ():
        dims = search.dims(match.values["x"])
        half, odd = divmod(dims[-1], 2)
        starts = [_start(search, match.named[name], half) for name in ("first", "second")]
        last = match.named["turned"].attributes["axis"] % len(dims) == len(dims) - 1
        if last and not odd and starts == [0, half]:
            read = tuple(match.values[name] for name in ("x", "cos", "sin"))
            node = Node(root.name, "RotaryEmbedding", read, root.outputs, {}, "vklab", 1)
            yield match, ((node,), {})


def _start(search: matching.PatternSearch, node: Node, size: int) -> int | None:
    """Return the start of a Slice of the last axis to a size; None for any other Slice."""
    before, after = search.dims(node.inputs[0]), search.dims(node.outputs[0])
    starts, axes, steps = (_integers(search, node, number) for number in (1, 3, 4))
    along = [axis % len(before) for axis in axes or range(len(starts))]
    if (*before[:-1], size) != after or along[-1:] != [len(before) - 1] or set(steps) - {1}:
        return None
    return starts[-1] % before[-1]


def _integers(search: matching.PatternSearch, node: Node, number: int) -> tuple[int, ...]:
    name = node.inputs[number] if number < len(node.inputs) else ""
    return inputs.known_integers(search.info(name), "a slice") if name else ()
