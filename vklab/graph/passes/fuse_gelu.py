"""fuse_gelu: x * (1 + erf(x / sqrt 2)) / 2 becomes Gelu, and so does its form with a tanh.

x * sigmoid(1.702 x) stays: that is another function. Exporters write these below opset 20.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import Either, Number, Step, Value, times

__all__ = ["fuse_gelu"]

X, HALF, ONE = Value("x"), Number(0.5), Number(1.0)
ROOT, CUBIC = Number(math.sqrt(2 / math.pi)), Number(0.044715)
SQUARE = Step("Pow", (X, Number(2.0)))
SHARE = Either((Step("Div", (X, Number(math.sqrt(2)))), times(X, Number(math.sqrt(0.5)))))
CUBE = Either((
    times(CUBIC, Step("Pow", (X, Number(3.0)))), times(CUBIC, X, SQUARE), times(CUBIC, X, X, X),
))  # fmt: skip
BENT = Either((
    times(ROOT, Step("Add", (X, CUBE))),
    times(ROOT, X, Step("Add", (ONE, Either((times(CUBIC, SQUARE), times(CUBIC, X, X)))))),
))  # fmt: skip


def _whole(above: Step) -> Either:
    share = Step("Add", (ONE, above))
    return Either((
        times(X, HALF, share), Step("Div", (times(X, share), Number(2.0))),
        times(Step("Div", (X, Number(2.0))), share),
    ))  # fmt: skip


FORMS = {"none": _whole(Step("Erf", (SHARE,))), "tanh": _whole(Step("Tanh", (BENT,)))}


def fuse_gelu(graph: Graph) -> Graph:
    """Replace what Gelu is made of by Gelu."""
    return matching.replaced(graph, _build)


def _build(
    search: matching.Search, root: Node
) -> Iterator[tuple[matching.Found, matching.Built]]:
    for approximate, form in FORMS.items() if root.op_type in ("Mul", "Div") else ():
        for found in search.find(form, root.outputs[0]):
            node = Node(root.name, "Gelu", (found.values["x"],), root.outputs,
                        {"approximate": approximate}, opset=20)  # fmt: skip
            yield found, ((node,), {})
