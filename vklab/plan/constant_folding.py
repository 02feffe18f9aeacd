"""Fold values that are known before a graph runs: computed on the host, never dispatched.

Shape arithmetic is folded here; so is an If whose condition is known. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from vklab.graph import constant_cache, functions, operator_cache
from vklab.graph.graph import RANDOM, Graph, Node
from vklab.ops import quantize, registry
from vklab.ops.dtypes import MOVABLE
from vklab.types import TensorInfo

__all__ = ["ASKED_ELEMENTS", "RANDOM", "Evaluate", "ConstantFolder", "onnx_functions"]

# (node, its graph, values of its inputs) -> values of its outputs, computed on the host.
Evaluate = Callable[[Node, Graph, Sequence[np.ndarray | None]], Sequence[Any]]
# (index of an output, index of the input whose bytes it shares)
Views = Sequence[tuple[int, int]]
# A value of more elements than this never decides a plan.
ASKED_ELEMENTS = 64
# Known outputs stay with a device that can compute them if they have more bytes than this and more
# than four times the bytes of the inputs.
FOLDED_BYTES = 32 << 20


def onnx_functions() -> Any:
    """Return `graph.onnx_functions`, which imports onnx; None where that is not installed."""
    if find_spec("onnx") is None:
        return None
    from vklab.graph import onnx_functions as loaded

    return loaded


class ConstantFolder:
    """Infos of all values so far, with the contents of the known ones.

    Attributes:
        infos: every value that a node may read.
        folded: values computed while planning.
        asked: inputs whose values decide the plan, and so belong to its key, and the values folded
            from them.

    Source: Muchnick, Advanced Compiler Design and Implementation (1997), section 12.1
    """

    def __init__(self, graph: Graph, inputs: Mapping[str, TensorInfo], evaluate: Evaluate) -> None:
        """Start from the initializers and inputs of a graph.

        Args:
            graph: the graph whose nodes are folded.
            inputs: dtype and shape of each input, with its value if that decides the plan.
            evaluate: computes one node on the host.
        """
        self.graph = graph
        self.inputs = inputs
        self.evaluate = evaluate
        self.infos: dict[str, TensorInfo] = {**graph.initializers, **inputs}
        self.folded: dict[str, TensorInfo] = {}
        self.asked = {name for name, value in inputs.items() if value.constant is not None}

    def add(self, constants: Mapping[str, TensorInfo]) -> None:
        """Record known values."""
        self.infos.update(constants)
        self.folded.update(constants)

    def is_known(self, node: Node) -> bool:
        """Tell whether all inputs of a node are known, and determine its outputs."""
        return (
            bool(node.reads)
            and node.op_type not in RANDOM
            and all(self.infos[name].constant is not None for name in node.reads)
        )

    def depends_on_asked(self, node: Node) -> bool:
        """Tell whether a node reads an input in `asked`, or a value folded from one."""
        return not self.asked.isdisjoint(node.inputs)

    def is_output(self, node: Node) -> bool:
        """Tell whether a node writes an output of the graph."""
        return any(name in self.graph.outputs for name in node.outputs)

    def is_small(self, node: Node, outputs: Sequence[TensorInfo]) -> bool:
        """Tell whether folded outputs are worth their memory on the host.

        Codes of 8 bits are not folded to floats: an integer product may read them. The pass
        `widen_weights` folds what none reads.
        """
        read = [self.infos[name] for name in node.reads]
        made, given = (sum(info.size_bytes for info in infos) for infos in (outputs, read))
        return made <= max(FOLDED_BYTES, 4 * given) and not quantize.widens(node, read)

    def fold(self, node: Node, views: Views = (), outputs: Sequence[TensorInfo] = ()) -> bool:
        """Compute a node whose inputs are known; tell whether that was possible.

        Args:
            node: the node.
            views: (output, input) pairs that share bytes: the output is a reshaped input.
            outputs: dtype and shape of each output, from the operator.
        """
        try:
            values = self._viewed(node, views, outputs) or self._folded(node)
        except Exception:  # reported when the node has to run
            return False
        if not all(
            isinstance(value, np.ndarray) and str(value.dtype) in MOVABLE for value in values
        ):
            return False
        for name, value in zip(node.outputs, values, strict=False):
            if name:
                self.add({name: TensorInfo(name, str(value.dtype), value.shape, value)})
                if self.depends_on_asked(node):
                    self.asked.add(name)
        return True

    def _viewed(self, node: Node, views: Views, outputs: Sequence[TensorInfo]) -> list[Any]:
        sources = [self.infos[node.inputs[read]].constant for _, read in sorted(views)]
        pairs = list(zip(sources, outputs, strict=False))
        if len(sources) != len(outputs) or any(
            array is None or str(array.dtype) != info.dtype for array, info in pairs
        ):
            return []
        return [
            constant_cache.derive(("view", info.dims), lambda a, to=info.dims: a.reshape(to), array)
            for array, info in pairs
            if array is not None
        ]

    def _folded(self, node: Node) -> Sequence[Any]:
        """Return the outputs of a node.

        Results of large inputs are cached by identity in `constant_cache`, others by value in
        `operator_cache`.
        """
        infos = [self.infos[name] if name else None for name in node.inputs]
        arrays = [info.constant if info else None for info in infos]
        key = operator_cache.key(self.graph, node, infos)
        most = operator_cache.SMALL_BYTES
        large = [a for a in arrays if key and a is not None and a.nbytes > most]
        if large and len(node.outputs) == 1:

            def compute(*_: np.ndarray) -> np.ndarray:
                output: np.ndarray = self.evaluate(node, self.graph, arrays)[0]
                return output

            return [constant_cache.derive(("folded", key), compute, *large)]
        outputs: Sequence[Any] | None = operator_cache.get(("folded", key)) if key else None
        if outputs is None:
            outputs = self.evaluate(node, self.graph, arrays)
            if key and not large:
                operator_cache.put(("folded", key), outputs)
        return outputs

    def branch(self, node: Node) -> Sequence[Node] | None:
        """Return the chosen branch of an If whose condition is known; None for any other node."""
        if node.op_type != "If" or node.domain or len(node.bodies) != 2:
            return None
        condition = self.infos[node.inputs[0]].constant
        if condition is None or condition.size != 1 or node.inputs[0] in self.asked:
            return None
        body = node.bodies["then_branch" if condition else "else_branch"]
        return self.take(functions.inline(node, body))

    def expand(self, node: Node) -> Sequence[Node] | None:
        """Return the nodes of ONNX's own function body for an operator without any kernel."""
        opset = self.graph.opset_of(node)
        entries = registry.OPERATORS.get((node.domain, node.op_type), [])
        if any(entry.since <= opset for entry in entries):
            return None  # it has kernels, which have refused for a reason
        loaded = onnx_functions()
        return self.take(loaded.expand(self.graph, node, self.infos) if loaded else None)

    def take(
        self, body: tuple[tuple[Node, ...], dict[str, TensorInfo]] | None
    ) -> Sequence[Node] | None:
        """Return the nodes that replace one, if there are any, and record their constants."""
        if body is None:
            return None
        self.add(body[1])
        return body[0]

    def sources(self, name: str, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the inputs that decide a value made by these nodes; () if one of them is large."""
        makers = {out: node for node in nodes for out in node.outputs}
        seen, open_names, deciding = {name}, [name], []
        while open_names:
            current = open_names.pop()
            value = self.infos.get(current)
            if value is None:
                return ()
            if current in self.inputs:
                direct = current == name or value.dtype in ("int64", "int32", "bool")
                if not direct or value.count > ASKED_ELEMENTS:
                    return ()
                deciding.append(current)
            elif current in makers:
                fresh = [n for n in makers[current].reads if n not in seen]
                seen.update(fresh)
                open_names += fresh
        return tuple(n for n in deciding if n not in self.asked)
