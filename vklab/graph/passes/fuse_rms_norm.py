"""fuse_rms_norm: replace x / sqrt(mean(x^2) + epsilon), weighted or not, by RMSNormalization.

Matches the forms that exporters write, with the casts that keep their sums in float32.
Visited by lab 10.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import AnyValue, Either, KnownNumber, Pattern, PatternStep
from vklab.ops import inputs
from vklab.types import TensorInfo


def square(x: Pattern) -> Pattern:
    """Return a pattern for x^2."""
    return Either((PatternStep("Pow", (x, KnownNumber(2.0))), PatternStep("Mul", (x, x))))


def inverse_root(mean: Pattern) -> Pattern:
    """Return a pattern for 1 / sqrt(mean + epsilon)."""
    root = _root(mean)
    return Either(
        (
            PatternStep("Reciprocal", (root,)),
            PatternStep("Div", (KnownNumber(1.0), root)),
            PatternStep("Pow", (_above(mean), KnownNumber(-0.5))),
        )
    )


def over_root(x: Pattern, mean: Pattern) -> Pattern:
    """Return a pattern for x / sqrt(mean + epsilon)."""
    quotient = PatternStep("Div", (x, _root(mean)))
    return Either((quotient, PatternStep("Mul", (x, inverse_root(mean)))))


def _root(mean: Pattern) -> Pattern:
    above = _above(mean)
    return Either((PatternStep("Sqrt", (above,)), PatternStep("Pow", (above, KnownNumber(0.5)))))


def _above(mean: Pattern) -> PatternStep:
    return PatternStep("Add", (mean, KnownNumber(name="epsilon")))


def trailing_axis(search: matching.PatternSearch, match: matching.Match) -> int | None:
    """Return the axis from which every mean of a match runs to the last axis; else None."""
    axes = set()
    for name, node in match.named.items():
        if not name.startswith("mean"):
            continue
        rank = search.info(node.inputs[0]).rank
        given = node.attributes.get("axes", ())
        if len(node.inputs) > 1 and node.inputs[1]:
            given = inputs.known_integers(search.info(node.inputs[1]), "axes")
        over = sorted(axis % rank for axis in given)
        trails = bool(over) and over == list(range(over[0], rank))
        axes.add(over[0] if trails and node.attributes.get("keepdims", 1) else None)
    return axes.pop() if len(axes) == 1 else None


def weight_of(
    search: matching.PatternSearch, match: matching.Match, root: Node
) -> tuple[str, dict[str, TensorInfo]]:
    """Return the name of a normalization's weight, and a new constant of ones if it has none.

    Args:
        search: the searched graph.
        match: the normalization, with "weight" and "bias" among its values if it has them.
        root: the node that makes the normalization's result.
    """
    if "weight" in match.values:
        return match.values["weight"], {}
    dtype = search.info(root.outputs[0]).dtype
    shape = search.dims(match.values["bias"]) if "bias" in match.values else (1,)
    name = f"vklab/one/{dtype}{list(shape)}"
    return name, {name: TensorInfo(name, dtype, shape, _ones(shape, dtype))}


_ones = functools.cache(np.ones)


X = AnyValue("x")
NORMAL = over_root(X, PatternStep("ReduceMean", (square(X),), "mean"))
FORMS = (PatternStep("Mul", (AnyValue("weight"), NORMAL)), NORMAL)


def fuse_rms_norm(graph: Graph) -> Graph:
    """Replace each subgraph that computes an RMS normalization by one RMSNormalization node.

    Source: ONNX RMSNormalization-23; Zhang and Sennrich 2019, "Root Mean Square
    Layer Normalization"
    """
    return matching.replaced(graph, _build)


def _build(
    search: matching.PatternSearch, root: Node
) -> Iterator[tuple[matching.Match, matching.Built]]:
    for form in FORMS if root.op_type in ("Mul", "Div") else ():
        for match in search.find(form, root.outputs[0]):
            axis = trailing_axis(search, match)
            if axis is None:
                continue
            weight, made = weight_of(search, match, root)
            attributes = {"axis": axis, "epsilon": match.numbers["epsilon"]}
            node = Node(
                root.name,
                "RMSNormalization",
                (match.values["x"], weight),
                root.outputs,
                attributes,
                opset=23,
            )
            yield match, ((node,), made)
