"""fuse_attention: two products with a softmax in between become one Attention on 4-D heads.

Scales on either side, a mask (added, or choosing), guards against rows of NaN and keys that are
repeated for several heads of queries go in. Transposes around it stay: products store transposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import Either, Found, Number, Pattern, Step, Value

__all__ = ["fuse_attention"]


def _scaled(x: Pattern, name: str) -> Pattern:
    times, over = Number(name=f"times {name}"), Number(name=f"over {name}")
    return Either((Step("Mul", (x, times)), Step("Div", (x, over)), x))


def _repeated(name: str) -> Pattern:
    """Return heads, or heads of which each stands for several, one after the other."""
    once = Step("Unsqueeze|Reshape", (Value(name),))
    many = Step("Expand", (once,), f"many {name}")
    return Either((Step("Reshape", (many,), f"all {name}"), Value(name)))


def _turned(x: Pattern) -> Pattern:
    """Return the transpose of x, which torch takes with heads and batches as one axis."""
    flat = Step("Transpose", (Step("Reshape", (x,)),), "turn")
    return Either((Step("Transpose", (x,), "turn"), Step("Reshape", (flat,), "flat")))


KEYS = Either((
    _scaled(_turned(_repeated("k")), "k"), _turned(_scaled(_repeated("k"), "k")),
))  # fmt: skip
SCORES = _scaled(Step("MatMul", (_scaled(Value("q"), "q"), KEYS), "scores"), "scores")
FILL, MASK = Number(name="fill"), Value("mask")
MASKED = Either((
    Step("Add", (SCORES, MASK)), Step("Where", (Value("open"), SCORES, FILL)),
    Step("Where", (Value("closed"), FILL, SCORES)), SCORES,
))  # fmt: skip
WEIGHTS = Step("Softmax", (MASKED,), "softmax")
GUARDED = Step("Where", (Step("IsNaN", (WEIGHTS,), "guard"), Number(0.0), WEIGHTS))
FORM = Step("MatMul", (Either((GUARDED, WEIGHTS)), _repeated("v")))
# An Attention whose exporter has repeated its keys and values.
GROUPED = Step("Attention", (Value("q"), _repeated("k"), _repeated("v")), more=True)


def fuse_attention(graph: Graph) -> Graph:
    """Replace what Attention is made of by Attention."""
    return matching.replaced(graph, _build)


def _build(search: matching.Search, root: Node) -> Iterator[tuple[Found, matching.Built]]:
    if root.op_type == "MatMul" and search.info(root.outputs[0]).rank == 4:
        for found in search.find(FORM, root.outputs[0]):
            nodes = _attention(search, found, root) if _is_attention(search, found) else ()
            if nodes:
                yield found, (nodes, {})
    if root.op_type == "Attention" and not root.domain:
        yield from _regrouped(search, root)


def _is_attention(search: matching.Search, found: Found) -> bool:
    """Tell whether axes and shapes are those of an attention."""
    scores = search.dims(found.named["scores"].outputs[0])
    softmax = found.named["softmax"]
    usual = -1 if search.graph.opset_of(softmax) >= 13 else 1
    last = softmax.attributes.get("axis", usual) in (-1, 3)
    masks = [search.dims(found.values[n]) for n in ("mask", "open", "closed") if n in found.values]
    even = all(len(dims) <= 4 and (not dims or dims[-1] in (1, scores[3])) for dims in masks)
    return len(scores) == 4 and last and even and _repeats(search, found)


def _repeats(search: matching.Search, found: Found) -> bool:
    """Tell whether every head is repeated by itself, if heads are."""
    for name in ("k", "v"):
        if f"many {name}" not in found.named:
            continue
        many, whole = (found.named[f"{what} {name}"].outputs[0] for what in ("many", "all"))
        batch, heads, *row = search.dims(found.values[name])
        times = search.dims(many)[2:3]
        if search.dims(many) != (batch, heads, *times, *row) or len(row) != 2 or (
            search.dims(whole) != (batch, heads * times[0], *row)
        ):
            return False
    return True


def _attention(search: matching.Search, found: Found, root: Node) -> tuple[Node, ...]:
    """Return the nodes for a pattern; none if its keys are not turned as they should be."""
    nodes: list[Node] = []
    values, guarded = found.values, "guard" in found.named
    k, turn = values["k"], found.named["turn"].attributes.get("perm", ())
    if "flat" in found.named:
        turn = (0, 1, 3, 2) if turn == (0, 2, 1) and _is_flat(search, found) else ()
    if turn == (0, 2, 3, 1) and "many k" not in found.named:
        k = f"{root.name}/k"
        nodes.append(Node(f"{root.name}/turn", "Transpose", (values["k"],), (k,),
                          {"perm": (0, 2, 1, 3)}))  # fmt: skip
    elif turn != (0, 1, 3, 2):
        return ()
    mask = values.get("mask") or values.get("open") or ""
    if "closed" in values:
        mask = f"{root.name}/open"
        nodes.append(Node(f"{root.name}/not", "Not", (values["closed"],), (mask,)))
    scale = math.prod(n for name, n in found.numbers.items() if name.startswith("times "))
    parts = math.prod(n for name, n in found.numbers.items() if name.startswith("over "))
    scale = scale / parts if parts else math.inf
    own: dict[str, float] = {"guarded": int(guarded)}
    if "fill" in found.numbers:
        own["fill"] = found.numbers["fill"]
    # Rows without any key are NaN to Softmax, and 0 to ONNX's Attention.
    plain = not mask and not guarded
    nodes.append(
        Node(root.name, "Attention", (values["q"], k, values["v"], *((mask,) if mask else ())),
             root.outputs, {"scale": scale, **({} if plain else own)}, "" if plain else "vklab",
             23 if plain else 1)
    )  # fmt: skip
    return tuple(nodes)


def _is_flat(search: matching.Search, found: Found) -> bool:
    """Tell whether a transpose of rank 3 is one of heads: batches and heads were made one axis."""
    before = search.dims(found.named["turn"].inputs[0])
    after = search.dims(found.named["flat"].outputs[0])
    batch, heads, columns, rows = after if len(after) == 4 else (0, 0, 0, 0)
    return before == (batch * heads, rows, columns)


def _regrouped(search: matching.Search, root: Node) -> Iterator[tuple[Found, matching.Built]]:
    """Let an Attention read keys and values as they were before they were repeated."""
    for found in search.find(GROUPED, root.outputs[0]):
        if {"all k", "all v"} <= found.named.keys() and _repeats(search, found):
            read = (*(found.values[name] for name in "qkv"), *root.inputs[3:])
            yield found, ((replace(root, inputs=read),), {})
