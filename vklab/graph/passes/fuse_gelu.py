"""fuse_gelu: replace x * (1 + erf(x / sqrt 2)) / 2, or its tanh approximation, by Gelu.

Exporters write these forms below opset 20. x * sigmoid(1.702 x) is another function and stays.
Visited by lab 10.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import matching
from vklab.graph.passes.matching import AnyValue, Either, KnownNumber, PatternStep, times

X, HALF, ONE = AnyValue("x"), KnownNumber(0.5), KnownNumber(1.0)
ROOT, CUBIC = KnownNumber(math.sqrt(2 / math.pi)), KnownNumber(0.044715)
SQUARE = PatternStep("Pow", (X, KnownNumber(2.0)))
SHARE = Either(
    (
        PatternStep("Div", (X, KnownNumber(math.sqrt(2)))),
        times(X, KnownNumber(math.sqrt(0.5))),
    )
)
CUBE = Either((
    times(CUBIC, PatternStep("Pow", (X, KnownNumber(3.0)))), times(CUBIC, X, SQUARE),
    times(CUBIC, X, X, X),
))  # fmt: skip
BENT = Either(
    (
        times(ROOT, PatternStep("Add", (X, CUBE))),
        times(
            ROOT, X, PatternStep("Add", (ONE, Either((times(CUBIC, SQUARE), times(CUBIC, X, X)))))
        ),
    )
)


def _whole(above: PatternStep) -> Either:
    share = PatternStep("Add", (ONE, above))
    return Either(
        (
            times(X, HALF, share),
            PatternStep("Div", (times(X, share), KnownNumber(2.0))),
            times(PatternStep("Div", (X, KnownNumber(2.0))), share),
        )
    )


FORMS = {"none": _whole(PatternStep("Erf", (SHARE,))), "tanh": _whole(PatternStep("Tanh", (BENT,)))}


def fuse_gelu(graph: Graph) -> Graph:
    """Replace each subgraph that computes Gelu by one Gelu node.

    Source: ONNX Gelu-20; Hendrycks and Gimpel 2016, "Gaussian Error Linear Units (GELUs)"
    """
    return matching.replaced(graph, _build)


def _build(
    search: matching.PatternSearch, root: Node
) -> Iterator[tuple[matching.Match, matching.Built]]:
    for approximate, form in FORMS.items() if root.op_type in ("Mul", "Div") else ():
        for match in search.find(form, root.outputs[0]):
            node = Node(
                root.name,
                "Gelu",
                (match.values["x"],),
                root.outputs,
                {"approximate": approximate},
                opset=20,
            )
            yield match, ((node,), {})
