"""fuse_layer_norm: (x - mean) / sqrt(variance + epsilon) * weight + bias: LayerNormalization.

In the forms of exporters below opset 17: PyTorch's, old BERTs', and TensorFlow's, which shifts by
bias - mean * scale.
"""

from __future__ import annotations

from collections.abc import Iterator

from vklab.graph.graph import Graph, Node
from vklab.graph.passes import fuse_rms_norm, matching
from vklab.graph.passes.matching import Step, Value

__all__ = ["fuse_layer_norm"]

X, WEIGHT, BIAS = Value("x"), Value("weight"), Value("bias")
MEAN = Step("ReduceMean", (X,), "mean")
DISTANCE = Step("Sub", (X, MEAN))
VARIANCE = Step("ReduceMean", (fuse_rms_norm.square(DISTANCE),), "mean of squares")
NORMAL = fuse_rms_norm.over_root(DISTANCE, VARIANCE)
SCALED = Step("Mul", (WEIGHT, NORMAL))
INVERSE = fuse_rms_norm.inverse_root(VARIANCE)
SHIFTED = tuple(
    Step("Add", (Step("Mul", (X, factor)), Step("Sub", (BIAS, Step("Mul", (MEAN, factor))))))
    for factor in (Step("Mul", (INVERSE, WEIGHT)), INVERSE)
)
FORMS = {
    "Add": (Step("Add", (SCALED, BIAS)), *SHIFTED), "Mul": (SCALED, NORMAL), "Div": (NORMAL,),
}  # fmt: skip


def fuse_layer_norm(graph: Graph) -> Graph:
    """Replace what LayerNormalization is made of by LayerNormalization."""
    return matching.replaced(graph, _build)


def _build(
    search: matching.Search, root: Node
) -> Iterator[tuple[matching.Found, matching.Built]]:
    for form in FORMS.get(root.op_type, ()):
        for found in search.find(form, root.outputs[0]):
            axis = fuse_rms_norm.trailing_axis(search, found)
            if axis is None:
                continue
            weight, made = fuse_rms_norm.weight_of(search, found, root)
            bias = found.values.get("bias")
            read = (found.values["x"], weight, *((bias,) if bias else ()))
            attributes = {"axis": axis, "epsilon": found.numbers["epsilon"]}
            node = Node(root.name, "LayerNormalization", read, root.outputs, attributes, opset=17)
            yield found, ((node,), made)
