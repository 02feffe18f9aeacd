"""fuse_attention: replace MatMul - Softmax - MatMul on 4-D heads by one Attention.

Scales, a mask (added or selected by Where), guards against rows of NaN and keys repeated for
several query heads are included. Transposes around it stay: products store transposed.
Visited by lab 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching, rewriting
from vklab.graph.passes.matching import AnyValue, Either, KnownNumber, Match, Pattern, PatternStep
from vklab.types import TensorInfo


def _scaled(x: Pattern, name: str) -> Pattern:
    """Return x, possibly multiplied or divided by a number."""
    times, over = KnownNumber(name=f"times {name}"), KnownNumber(name=f"over {name}")
    return Either((PatternStep("Mul", (x, times)), PatternStep("Div", (x, over)), x))


def _repeated(name: str) -> Pattern:
    """Return a pattern for heads, possibly each repeated for a group of query heads."""
    once = PatternStep("Unsqueeze|Reshape", (AnyValue(name),))
    many = PatternStep("Expand", (once,), f"many {name}")
    return Either((PatternStep("Reshape", (many,), f"all {name}"), AnyValue(name)))


def _transposed(x: Pattern) -> Pattern:
    """Return a pattern for the transpose of x; PyTorch may have joined batch and heads before."""
    turn = PatternStep("Transpose", (x,), "turn")
    flat = PatternStep("Transpose", (PatternStep("Reshape", (x,)),), "turn")
    return Either((turn, *(PatternStep("Reshape", (each,), "flat") for each in (flat, turn))))


KEYS = Either(
    (
        _scaled(_transposed(_repeated("k")), "k"),
        _transposed(_scaled(_repeated("k"), "k")),
    )
)
SCORES = _scaled(PatternStep("MatMul", (_scaled(AnyValue("q"), "q"), KEYS), "scores"), "scores")
FILL, MASK = KnownNumber(name="fill"), AnyValue("mask")
MASKED = Either((
    PatternStep("Add", (SCORES, MASK)), PatternStep("Where", (AnyValue("open"), SCORES, FILL)),
    PatternStep("Where", (AnyValue("closed"), FILL, SCORES)), SCORES,
))  # fmt: skip
WEIGHTS = PatternStep("Softmax", (MASKED,), "softmax")
GUARD = PatternStep("IsNaN", (WEIGHTS,), "guard")
GUARDED = PatternStep("Where", (GUARD, KnownNumber(0.0), WEIGHTS))
FORM = PatternStep("MatMul", (Either((GUARDED, WEIGHTS)), _repeated("v")))
# Axes of a Transpose of [rows, heads, columns] to [heads, columns, rows].
ROWS_FIRST = (1, 2, 0)
# An Attention node whose exporter has repeated the keys and values.
GROUPED = PatternStep("Attention", (AnyValue("q"), _repeated("k"), _repeated("v")), more=True)


def fuse_attention(graph: Graph) -> Graph:
    """Replace each subgraph that computes attention by one Attention node.

    Source: ONNX Attention-23; Vaswani et al. 2017, "Attention Is All You Need"
    """
    return matching.replaced(graph, _build)


def _build(search: matching.PatternSearch, root: Node) -> Iterator[tuple[Match, matching.Built]]:
    if root.op_type == "MatMul" and search.info(root.outputs[0]).rank == 4:
        for match in search.find(FORM, root.outputs[0]):
            nodes, made = _attention(search, match, root)
            if nodes and _is_attention(search, match):
                yield match, (nodes, made)
    if root.op_type == "Attention" and not root.domain:
        yield from _regrouped(search, root)


def _is_attention(search: matching.PatternSearch, match: Match) -> bool:
    """Tell whether the axes and shapes of a match are those of attention."""
    scores = search.dims(match.named["scores"].outputs[0])
    softmax = match.named["softmax"]
    usual = -1 if search.graph.opset_of(softmax) >= 13 else 1
    last = softmax.attributes.get("axis", usual) in (-1, 3)
    masks = [search.dims(match.values[n]) for n in ("mask", "open", "closed") if n in match.values]
    even = all(len(dims) <= 4 and (not dims or dims[-1] in (1, scores[3])) for dims in masks)
    return len(scores) == 4 and last and even and _repeats(search, match)


def _repeats(search: matching.PatternSearch, match: Match) -> bool:
    """Tell whether repeated heads, if there are any, are each repeated as one block."""
    for name in ("k", "v"):
        if f"many {name}" not in match.named:
            continue
        many, whole = (match.named[f"{what} {name}"].outputs[0] for what in ("many", "all"))
        batch, heads, *row = search.dims(match.values[name])
        times = search.dims(many)[2:3]
        if (
            search.dims(many) != (batch, heads, *times, *row)
            or len(row) != 2
            or (search.dims(whole) != (batch, heads * times[0], *row))
        ):
            return False
    return True


def _attention(search: matching.PatternSearch, match: Match, root: Node) -> matching.Built:
    """Return the nodes that replace a match; none if its keys have another axis order."""
    nodes, made = _separated(search, match, root)
    values, guarded = match.values, "guard" in match.named
    k, turn = values["k"], match.named["turn"].attributes.get("perm", ())
    if "flat" in match.named:
        turn = (0, 1, 3, 2) if _is_flat(search, match, turn) else ()
    if nodes:
        k = nodes[-1].outputs[0]
    if turn == (0, 2, 3, 1) and "many k" not in match.named:
        k = internal(root.name, "k")
        nodes.append(
            Node(
                internal(root.name, "turn"),
                "Transpose",
                (values["k"],),
                (k,),
                {"perm": (0, 2, 1, 3)},
            )
        )
    elif turn != (0, 1, 3, 2):
        return (), {}
    mask = values.get("mask") or values.get("open") or ""
    if "closed" in values:
        mask = internal(root.name, "attention mask")
        nodes.append(Node(internal(root.name, "not"), "Not", (values["closed"],), (mask,)))
    scale = math.prod(n for name, n in match.numbers.items() if name.startswith("times "))
    parts = math.prod(n for name, n in match.numbers.items() if name.startswith("over "))
    scale = scale / parts if parts else math.inf
    own: dict[str, float] = {"guarded": int(guarded)}
    if "fill" in match.numbers:
        own["fill"] = match.numbers["fill"]
    # A row whose keys are all masked is NaN after Softmax, but 0 after ONNX's Attention.
    plain = not mask and not guarded
    nodes.append(
        Node(
            root.name,
            "Attention",
            (values["q"], k, values["v"], *((mask,) if mask else ())),
            root.outputs,
            {"scale": scale, **({} if plain else own)},
            "" if plain else "vklab",
            23 if plain else 1,
        )
    )
    return nodes, made


def _separated(
    search: matching.PatternSearch, match: Match, root: Node
) -> tuple[list[Node], dict[str, TensorInfo]]:
    """Return the nodes that separate batch and heads of keys of rank 3, and their constants."""
    k = match.values["k"]
    if "flat" not in match.named or search.info(k).rank != 3:
        return [], {}
    nodes = []
    if match.named["turn"].attributes.get("perm") == ROWS_FIRST:
        heads = internal(root.name, "heads")
        nodes.append(Node(heads, "Transpose", (k,), (heads,), {"perm": (1, 0, 2)}))
        k = nodes[-1].outputs[0]
    *outer, columns, rows = search.dims(match.named["flat"].outputs[0])
    shape = rewriting.constant(
        internal(root.name, "attention shape"), np.array((*outer, rows, columns), np.int64)
    )
    apart = internal(root.name, "attention apart")
    nodes.append(Node(apart, "Reshape", (k, shape.name), (apart,)))
    return nodes, {shape.name: shape}


def _is_flat(search: matching.PatternSearch, match: Match, turn: Sequence[int]) -> bool:
    """Tell whether a rank-3 Transpose is one of heads, with batch and heads joined to one axis.

    Args:
        search: the graph.
        match: a match with a Reshape behind the Transpose.
        turn: the axes of the Transpose.
    """
    before = search.dims(match.named["turn"].inputs[0])
    after = search.dims(match.named["flat"].outputs[0])
    batch, heads, columns, rows = after if len(after) == 4 else (0, 0, 0, 0)
    if turn == ROWS_FIRST:
        return before == (rows, batch * heads, columns) and before == search.dims(match.values["k"])
    return turn == (0, 2, 1) and before == (batch * heads, rows, columns)


def _regrouped(
    search: matching.PatternSearch, root: Node
) -> Iterator[tuple[Match, matching.Built]]:
    """Yield an Attention that reads keys and values from before they were repeated."""
    for match in search.find(GROUPED, root.outputs[0]):
        if {"all k", "all v"} <= match.named.keys() and _repeats(search, match):
            read = (*(match.values[name] for name in "qkv"), *root.inputs[3:])
            yield match, ((replace(root, inputs=read),), {})
