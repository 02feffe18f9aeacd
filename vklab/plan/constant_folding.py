"""What is known of a graph's values before it runs: folded on the host, and never dispatched.

Shape arithmetic ends here, and so do branches of an If whose condition is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab.graph import constant_cache, functions, operator_cache
from vklab.graph.graph import RANDOM, Graph, Node
from vklab.ops import registry
from vklab.ops.dtypes import MOVABLE
from vklab.types import TensorInfo

__all__ = ["ASKED_ELEMENTS", "RANDOM", "Evaluate", "ConstantFolder"]

# (node, its graph, the values of its inputs) -> its outputs, computed on the host while planning.
Evaluate = Callable[[Node, Graph, Sequence[np.ndarray | None]], Sequence[Any]]
# (number of an output, number of the input whose value it has)
Views = Sequence[tuple[int, int]]
# A value of more elements than this never decides a plan.
ASKED_ELEMENTS = 64
# A known value larger than this is not made while planning if a device can make it.
FOLDED_BYTES = 32 << 20


class ConstantFolder:
    """Infos of all values so far, with the values themselves where these are known.

    Attributes:
        infos: every value that a node may read.
        folded: those that became known while planning.
        asked: inputs whose values decide the plan, and what was folded from them.
    """

    def __init__(
        self, graph: Graph, inputs: Mapping[str, TensorInfo], evaluate: Evaluate
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.evaluate = evaluate
        self.infos: dict[str, TensorInfo] = {**graph.initializers, **inputs}
        self.folded: dict[str, TensorInfo] = {}
        self._outputs = frozenset(graph.outputs)
        self.asked = {name for name, value in inputs.items() if value.constant is not None}

    def add(self, constants: Mapping[str, TensorInfo]) -> None:
        """Take up values that are known."""
        self.infos.update(constants)
        self.folded.update(constants)

    def is_known(self, node: Node) -> bool:
        """Tell whether all that a node reads is known, and decides what it makes."""
        return (
            bool(node.reads)
            and node.op_type not in RANDOM
            and all(self.infos[name].constant is not None for name in node.reads)
        )

    def depends_on_asked(self, node: Node) -> bool:
        """Tell whether a node reads a value that was asked for."""
        return not self.asked.isdisjoint(node.inputs)

    def is_output(self, node: Node) -> bool:
        """Tell whether a node makes an output of the graph."""
        return not self._outputs.isdisjoint(node.outputs)

    def is_small(self, node: Node, outputs: Sequence[TensorInfo]) -> bool:
        """Tell whether a known result is worth its memory on the host."""
        made = sum(value.size_bytes for value in outputs)
        read = sum(self.infos[name].size_bytes for name in node.reads)
        return made <= max(FOLDED_BYTES, 4 * read)

    def fold(self, node: Node, views: Views = (), outputs: Sequence[TensorInfo] = ()) -> bool:
        """Compute a node whose inputs are known; tell whether that was possible.

        Args:
            views: (output, input) that are one value in two shapes: nothing is computed then.
            outputs: what the operator says of what it makes.
        """
        try:
            values = self._viewed(node, views, outputs) or self._folded(node)
        except Exception:  # what the host cannot compute either is reported when it has to run
            return False
        if not all(isinstance(value, np.ndarray) and str(value.dtype) in MOVABLE
                   for value in values):  # fmt: skip
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
            for array, info in pairs if array is not None
        ]  # fmt: skip

    def _folded(self, node: Node) -> Sequence[Any]:
        """Return what a node makes: of weights once for all shapes, of few numbers once a plan."""
        infos = [self.infos[name] if name else None for name in node.inputs]
        arrays = [info.constant if info else None for info in infos]
        key = operator_cache.key(self.graph, node, infos)
        large = [a for a in arrays if a is not None and a.nbytes > operator_cache.SMALL_BYTES]
        if key and large and len(node.outputs) == 1:

            def compute(*_: np.ndarray) -> np.ndarray:
                made: np.ndarray = self.evaluate(node, self.graph, arrays)[0]
                return made

            return [constant_cache.derive(("folded", key), compute, *large)]
        found: Sequence[Any] | None = self.graph.answers.get(("folded", key))
        if found is None or key is None:
            found = self.evaluate(node, self.graph, arrays)
            if key and not large:
                self.graph.answers["folded", key] = found
        return found

    def branch(self, node: Node) -> Sequence[Node] | None:
        """Return the nodes of an If whose condition is known; its other branch never runs."""
        if node.op_type != "If" or node.domain or len(node.bodies) != 2:
            return None
        condition = self.infos[node.inputs[0]].constant
        if condition is None or condition.size != 1 or node.inputs[0] in self.asked:
            return None
        body = node.bodies["then_branch" if condition else "else_branch"]
        return self._take(functions.inline(node, body))

    def expand(self, node: Node) -> Sequence[Node] | None:
        """Return the nodes of ONNX's own body for an operator that has no kernels at all."""
        opset = self.graph.opset_of(node)
        entries = registry.OPERATORS.get((node.domain, node.op_type), [])
        if any(entry.since <= opset for entry in entries):
            return None  # has kernels, and these have a reason to decline
        return self._take(functions.expand(self.graph, node, self.infos))

    def _take(
        self, found: tuple[tuple[Node, ...], dict[str, TensorInfo]] | None
    ) -> Sequence[Node] | None:
        if found is None:
            return None
        self.add(found[1])
        return found[0]

    def sources(self, name: str, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the inputs that decide a value made by these nodes, if they are few and small."""
        makers = {out: node for node in nodes for out in node.outputs}
        seen, open_names, found = {name}, [name], []
        while open_names:
            current = open_names.pop()
            value = self.infos.get(current)
            if value is None:
                return ()
            if current in self.inputs:
                direct = current == name or value.dtype in ("int64", "int32", "bool")
                if not direct or value.count > ASKED_ELEMENTS:
                    return ()
                found.append(current)
            elif current in makers:
                fresh = [n for n in makers[current].reads if n not in seen]
                seen.update(fresh)
                open_names += fresh
        return tuple(n for n in found if n not in self.asked)
