"""fuse_rms_norm: x / sqrt(mean(x^2) + epsilon), with or without a weight, is RMSNormalization.

In the forms in which exporters write it, with the casts that keep its sums in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import Either, Number, Pattern, Step, Value
from vklab.ops import inputs
from vklab.types import TensorInfo

__all__ = [
    "fuse_rms_norm", "inverse_root", "over_root", "square", "trailing_axis", "weight_of",
]  # fmt: skip


def square(x: Pattern) -> Pattern:
    """Return x^2."""
    return Either((Step("Pow", (x, Number(2.0))), Step("Mul", (x, x))))


def inverse_root(mean: Pattern) -> Pattern:
    """Return 1 / sqrt(mean + epsilon)."""
    root = _root(mean)
    return Either((
        Step("Reciprocal", (root,)), Step("Div", (Number(1.0), root)),
        Step("Pow", (Step("Add", (mean, Number(name="epsilon"))), Number(-0.5))),
    ))  # fmt: skip


def over_root(x: Pattern, mean: Pattern) -> Pattern:
    """Return x / sqrt(mean + epsilon)."""
    return Either((Step("Div", (x, _root(mean))), Step("Mul", (x, inverse_root(mean)))))


def _root(mean: Pattern) -> Pattern:
    above = Step("Add", (mean, Number(name="epsilon")))
    return Either((Step("Sqrt", (above,)), Step("Pow", (above, Number(0.5)))))


def trailing_axis(search: matching.Search, found: matching.Found) -> int | None:
    """Return the first of the axes that every mean is over, to the last; None if that is not so."""
    axes = set()
    for name, node in found.named.items():
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
    search: matching.Search, found: matching.Found, root: Node
) -> tuple[str, dict[str, TensorInfo]]:
    """Return the name of the weight, which is 1 where the pattern has none, and what is new."""
    if "weight" in found.values:
        return found.values["weight"], {}
    dtype = search.info(root.outputs[0]).dtype
    shape = search.dims(found.values["bias"]) if "bias" in found.values else (1,)
    name = f"vklab/one/{dtype}{list(shape)}"
    return name, {name: TensorInfo(name, dtype, shape, _ones(shape, dtype))}


_ones = functools.cache(np.ones)


X = Value("x")
NORMAL = over_root(X, Step("ReduceMean", (square(X),), "mean"))
FORMS = (Step("Mul", (Value("weight"), NORMAL)), NORMAL)


def fuse_rms_norm(graph: Graph) -> Graph:
    """Replace what RMSNormalization is made of by RMSNormalization."""
    return matching.replaced(graph, _build)


def _build(
    search: matching.Search, root: Node
) -> Iterator[tuple[matching.Found, matching.Built]]:
    for form in FORMS if root.op_type in ("Mul", "Div") else ():
        for found in search.find(form, root.outputs[0]):
            axis = trailing_axis(search, found)
            if axis is None:
                continue
            weight, made = weight_of(search, found, root)
            attributes = {"axis": axis, "epsilon": found.numbers["epsilon"]}
            node = Node(root.name, "RMSNormalization", (found.values["x"], weight), root.outputs,
                        attributes, opset=23)  # fmt: skip
            yield found, ((node,), made)
