"""Expand Gradient of ONNX's training preview into nodes, by reverse-mode differentiation.

The nodes between the xs and y are traversed backwards. In ONNX's conformance suite: the model
cases test_gradient_of_add and test_gradient_of_add_and_mul. Visited by lab 09.
Source: Griewank and Walther, "Evaluating Derivatives", 2008.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vklab.base.names import internal
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.graph.graph import Node

__all__ = ["DOMAIN", "expand_gradients"]

DOMAIN = "ai.onnx.preview.training"
_OPSET = 23
# Adds a node and returns the name of its output.
Emit = Callable[..., str]
# (emit, gradient of the output, node) -> gradient of each input
GradientRule = Callable[[Emit, str, Node], Sequence[str]]


def _product(emit: Emit, g: str, node: Node) -> Sequence[str]:
    a, b = node.inputs
    return emit("Mul", g, b), emit("Mul", g, a)


def _quotient(emit: Emit, g: str, node: Node) -> Sequence[str]:
    _, b = node.inputs
    by_b = emit("Neg", emit("Div", emit("Mul", g, node.outputs[0]), b))
    return emit("Div", g, b), by_b


def _matrix_product(emit: Emit, g: str, node: Node) -> Sequence[str]:
    a, b = node.inputs  # two matrices: Gemm rejects other ranks
    return emit("Gemm", g, b, transB=1), emit("Gemm", a, g, transA=1)


def _tanh(emit: Emit, g: str, node: Node) -> Sequence[str]:
    y = node.outputs[0]
    return (emit("Sub", g, emit("Mul", g, emit("Mul", y, y))),)


def _sigmoid(emit: Emit, g: str, node: Node) -> Sequence[str]:
    y = node.outputs[0]
    return (emit("Mul", g, emit("Sub", y, emit("Mul", y, y))),)


_RULES: dict[str, GradientRule] = {
    "Add": lambda emit, g, node: (g, g),
    "Sub": lambda emit, g, node: (g, emit("Neg", g)),
    "Mul": _product,
    "Div": _quotient,
    "Neg": lambda emit, g, node: (emit("Neg", g),),
    "Identity": lambda emit, g, node: (g,),
    "Exp": lambda emit, g, node: (emit("Mul", g, node.outputs[0]),),
    "Log": lambda emit, g, node: (emit("Div", g, node.inputs[0]),),
    "Relu": lambda emit, g, node: (emit("Mul", g, emit("Sign", node.outputs[0])),),
    "Tanh": _tanh,
    "Sigmoid": _sigmoid,
    "MatMul": _matrix_product,
}


def expand_gradients(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes with every Gradient replaced by nodes that compute it.

    Raises UnsupportedOperatorError for an operator without a rule here.

    Source: ONNX Gradient-1; Griewank and Walther 2008, "Evaluating Derivatives", reverse mode
    """
    expanded: list[Node] = []
    for node in nodes:
        if node.op_type == "Gradient" and node.domain == DOMAIN:
            expanded += _Backward(node, nodes).nodes
        else:
            expanded.append(node)
    return expanded


class _Backward:
    """Nodes that replace one Gradient; they propagate gradients from y back to the xs."""

    def __init__(self, node: Node, nodes: Sequence[Node]) -> None:
        self.node = node
        self.nodes: list[Node] = []
        xs, y = node.attributes.get("xs"), node.attributes.get("y")
        if not xs or not y:
            raise ModelError(f"node {node.name!r} (Gradient) lacks its attribute xs or y")
        zs = node.attributes.get("zs") or ()
        if tuple(node.inputs) != (*xs, *zs):
            raise UnsupportedOperatorError(
                f"node {node.name!r} (Gradient): inputs {node.inputs} are not its xs and zs "
                f"{(*xs, *zs)}; a gradient at other values than the graph's is not supported"
            )
        gradients = self._propagate(str(y), set(xs), self._between(nodes, set(xs)))
        for x, output in zip(xs, node.outputs, strict=False):
            if output:
                source = gradients.get(x) or self._emit("Sub", x, x)
                self._add("SumToShape", (source, x), output, "vklab")

    def _between(self, nodes: Sequence[Node], reached: set[str]) -> list[Node]:
        """Return the nodes that depend on the xs, in the order in which they run."""
        dependent = []
        for node in nodes:
            if not reached.isdisjoint(node.inputs) and node is not self.node:
                reached.update(node.outputs)
                dependent.append(node)
        return dependent

    def _propagate(self, y: str, xs: set[str], between: Sequence[Node]) -> dict[str, str]:
        reached = xs | {name for node in between for name in node.outputs}
        one = self._emit("Exp", self._emit("Sub", y, y))
        gradients = {y: one}
        for node in reversed(between):
            g = gradients.get(node.outputs[0])
            if g is None:
                continue
            rule = _RULES.get(node.op_type) if not node.domain else None
            if rule is None:
                raise UnsupportedOperatorError(
                    f"node {self.node.name!r} (Gradient): the derivative of {node.op_type} is not "
                    f"known; known are {', '.join(_RULES)}"
                )
            for name, part in zip(node.inputs, rule(self._emit, g, node), strict=True):
                if name not in reached:
                    continue
                part = self._emit("SumToShape", part, name, domain="vklab")
                known = gradients.get(name)
                gradients[name] = self._emit("Add", known, part) if known else part
        return gradients

    def _emit(self, op_type: str, *inputs: str, domain: str = "", **attributes: int) -> str:
        name = internal(self.node.name, f"gradient {len(self.nodes)}")
        self._add(op_type, inputs, name, domain, **attributes)
        return name

    def _add(
        self, op_type: str, inputs: tuple[str, ...], output: str, domain: str, **attributes: int
    ) -> None:
        name = internal(self.node.name, f"gradient {op_type} {len(self.nodes)}")
        self.nodes.append(Node(name, op_type, inputs, (output,), attributes, domain, _OPSET))
