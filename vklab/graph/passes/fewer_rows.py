"""fewer_rows: compute only those rows that a Slice behind them keeps.

A vision transformer classifies by the row of its class token: of the last layer, the products
behind attention are needed for that row alone. For GPUs. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import layouts, rewriting
from vklab.types import TensorInfo

# Operators that compute each element from those at the same place.
EACH = frozenset({"Add", "Sub", "Mul", "Div", "Gelu", "Relu", "Erf", "Tanh", "Sigmoid", "Cast",
                  "Identity", "Neg", "Sqrt", "Abs"})  # fmt: skip
PRODUCTS = frozenset({"MatMul", "Gemm"})
VIEWS = frozenset({"Reshape", "Transpose"})


def fewer_rows(graph: Graph, width: int = 0) -> Graph:
    """Move a Slice before the nodes whose other rows nothing reads.

    Args:
        graph: the graph.
        width: elements of 16 bytes, which do not matter here.

    Source: Aho, Lam, Sethi and Ullman 2006, "Compilers", section 9.1, dead-code elimination
    """
    del width
    for cut in graph.nodes:
        axis = _axis(graph, cut)
        if axis is not None:
            moved = _Mover(graph, cut, axis).moved()
            if moved is not None:
                return moved
    return graph


def _axis(graph: Graph, cut: Node) -> int | None:
    """Return the axis along which a Slice of a computed value keeps a part; None for others."""
    if cut.op_type != "Slice" or cut.domain or len(cut.inputs) < 4:
        return None
    source, made = graph.infos[cut.inputs[0]], graph.infos[cut.outputs[0]]
    known = all(graph.infos[n].constant is not None for n in cut.inputs[1:] if n)
    if not (known and source.is_static and made.is_static and made.count) or len(cut.inputs) > 4:
        return None
    changed = [axis for axis in range(source.rank) if source.dims[axis] != made.dims[axis]]
    return changed[0] if len(changed) == 1 and changed[0] < source.rank - 1 else None


class _Mover:
    """A Slice, and the nodes that need to compute the rows that it keeps only."""

    def __init__(self, graph: Graph, cut: Node, axis: int) -> None:
        self.graph, self.infos, self.cut = graph, graph.infos, cut
        self.rows = graph.infos[cut.outputs[0]].dims[axis]
        self.kept = rewriting.fixed(graph)
        self.readers = graph.readers()
        self.axes = {cut.inputs[0]: axis}  # of values of which only some rows are needed
        self.chosen: dict[str, Node] = {}  # the nodes that are to compute those rows, by output

    def moved(self) -> Graph | None:
        """Return the graph with the Slice moved; None if no product has fewer rows then."""
        before = self.graph.nodes[: self.graph.nodes.index(self.cut)]
        for node in reversed(before):
            made = node.outputs[0]
            axes = self._inputs(node, self.axes[made]) if made in self.axes else None
            if axes is not None and self._is_alone(made) and self._agree(axes):
                self.axes |= axes
                self.chosen[made] = node
        for made, node in reversed(self.chosen.items()):  # views of a whole value cost nothing
            if node.op_type in VIEWS and node.inputs[0] not in self.chosen:
                self.chosen = {name: n for name, n in self.chosen.items() if name != made}
        if not any(node.op_type in PRODUCTS for node in self.chosen.values()):
            return None
        return self._rewritten()

    def _is_alone(self, made: str) -> bool:
        """Tell whether all readers of a value are nodes of fewer rows, or the Slice."""
        readers = self.readers.get(made, [])
        return made not in self.kept and all(
            node is self.cut or self.chosen.get(node.outputs[0]) is node for node in readers
        )

    def _agree(self, axes: dict[str, int]) -> bool:
        return all(self.axes.get(name, axis) == axis for name, axis in axes.items())

    def _inputs(self, node: Node, axis: int) -> dict[str, int] | None:
        """Return the axis of each input whose rows become fewer; None if others are needed, too."""
        made = self.infos[node.outputs[0]]
        if node.domain or any(node.outputs[1:]) or node.bodies:
            return None
        names = [name for name in node.inputs if name]
        first = self.infos[names[0]] if names else made
        if node.op_type in EACH:
            found = {}
            for info in (self.infos[name] for name in names):
                place = axis - made.rank + info.rank
                if place >= 0 and info.dims[place] != 1:
                    found[info.name] = place
            return found
        if node.op_type == "LayerNormalization":
            is_last = int(node.attributes.get("axis", -1)) % made.rank == made.rank - 1
            return {first.name: axis} if is_last else None
        if node.op_type in PRODUCTS:
            second = self.infos[names[1]]
            plain = not node.attributes.get("transA", 0) and axis < made.rank - 1
            bias = [self.infos[name] for name in names[2:]]
            flat = second.rank == 2 and second.constant is not None
            return {first.name: axis} if plain and flat and all(b.rank < 2 for b in bias) else None
        if node.op_type == "Transpose":
            return {first.name: layouts.permutation(node, first.rank)[axis]}
        return self._view(first, made, axis) if node.op_type == "Reshape" else None

    @staticmethod
    def _view(first: TensorInfo, made: TensorInfo, axis: int) -> dict[str, int] | None:
        """Return the axis before a Reshape that only adds or removes axes of size 1."""
        long = [[a for a, size in enumerate(info.dims) if size != 1] for info in (first, made)]
        sizes = [
            [info.dims[a] for a in axes] for info, axes in zip((first, made), long, strict=True)
        ]
        same = sizes[0] == sizes[1] and axis in long[1]
        return {first.name: long[0][long[1].index(axis)]} if same else None

    def _rewritten(self) -> Graph:
        ends: dict[str, Any] = dict(zip(("start", "end"), self.cut.inputs[1:3], strict=True))
        new: list[TensorInfo] = []
        nodes: list[Node] = []
        names = {self.cut.inputs[0]: self.cut.outputs[0]}
        cuts: set[str] = set()

        def fewer(name: str) -> str:
            return names.setdefault(name, internal(name, "fewer"))

        for node in self.graph.nodes:
            made = node.outputs[0]
            if node is self.cut:
                continue
            if made not in self.chosen:
                nodes.append(node)
                continue
            axes = self._inputs(node, self.axes[made]) or {}
            for name, axis in axes.items():
                if name not in self.chosen and name not in cuts:
                    cuts.add(name)
                    along = rewriting.constant(
                        internal(name, "fewer axis"), np.array([axis], np.int64)
                    )
                    new += [along, self._info(name, fewer(name), axis)]
                    nodes.append(
                        replace(
                            self.cut,
                            name=fewer(name),
                            outputs=(fewer(name),),
                            inputs=(name, *ends.values(), along.name),
                        )
                    )
            info = self._info(made, fewer(made), self.axes[made])
            turned = replace(
                node,
                outputs=(info.name,),
                inputs=tuple(fewer(name) if name in axes else name for name in node.inputs),
            )
            if node.op_type == "Reshape":
                turned, shape = rewriting.reshape(self.graph, turned.inputs[0], info)
                new.append(shape)
            nodes.append(turned)
            new.append(info)
        return rewriting.rewritten(self.graph, nodes, *new)

    def _info(self, name: str, changed: str, axis: int) -> TensorInfo:
        """Return what is known of a value after it has fewer rows along an axis."""
        info = self.infos[name]
        dims = (*info.dims[:axis], self.rows, *info.dims[axis + 1 :])
        return replace(info, name=changed, shape=dims, constant=None)
