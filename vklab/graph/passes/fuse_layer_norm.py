"""fuse_layer_norm: replace (x - mean) / sqrt(variance + epsilon) * weight + bias by one node.

Exporters below opset 17 write three forms: PyTorch's, that of early BERT models, and TensorFlow's,
which adds bias - mean * scale. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterator

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import fuse_rms_norm, matching
from vklab.graph.passes.matching import AnyValue, PatternStep

X, WEIGHT, BIAS = AnyValue("x"), AnyValue("weight"), AnyValue("bias")
MEAN = PatternStep("ReduceMean", (X,), "mean")
DISTANCE = PatternStep("Sub", (X, MEAN))
VARIANCE = PatternStep("ReduceMean", (fuse_rms_norm.square(DISTANCE),), "mean of squares")
NORMAL = fuse_rms_norm.over_root(DISTANCE, VARIANCE)
SCALED = PatternStep("Mul", (WEIGHT, NORMAL))
INVERSE = fuse_rms_norm.inverse_root(VARIANCE)
SHIFTED = tuple(
    PatternStep(
        "Add",
        (
            PatternStep("Mul", (X, factor)),
            PatternStep("Sub", (BIAS, PatternStep("Mul", (MEAN, factor)))),
        ),
    )
    for factor in (PatternStep("Mul", (INVERSE, WEIGHT)), INVERSE)
)
FORMS = {
    "Add": (PatternStep("Add", (SCALED, BIAS)), *SHIFTED), "Mul": (SCALED, NORMAL),
    "Div": (NORMAL,),
}  # fmt: skip


def fuse_layer_norm(graph: Graph) -> Graph:
    """Replace each subgraph that computes layer normalization by one LayerNormalization node.

    Source: ONNX LayerNormalization-17; Ba, Kiros and Hinton 2016, "Layer Normalization"
    """
    return matching.replaced(graph, _build)


def _build(
    search: matching.PatternSearch, root: Node
) -> Iterator[tuple[matching.Match, matching.Built]]:
    for form in FORMS.get(root.op_type, ()):
        for match in search.find(form, root.outputs[0]):
            axis = fuse_rms_norm.trailing_axis(search, match)
            if axis is None:
                continue
            weight, made = fuse_rms_norm.weight_of(search, match, root)
            bias = match.values.get("bias")
            read = (match.values["x"], weight, *((bias,) if bias else ()))
            attributes = {"axis": axis, "epsilon": match.numbers["epsilon"]}
            node = Node(root.name, "LayerNormalization", read, root.outputs, attributes, opset=17)
            yield match, ((node,), made)
