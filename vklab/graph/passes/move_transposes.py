"""move_transposes: move Transposes towards the outputs until they meet, merge and cancel.

They move past element-wise operators, Concat and reductions, and past a Reshape between two of
them, but only where that reduces their number. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import drop_dead_nodes, layouts, rewriting
from vklab.types import TensorInfo


def move_transposes(graph: Graph) -> Graph:
    """Move and merge Transposes as long as a move reduces their number."""
    while any(node.op_type == "Transpose" and not node.domain for node in graph.nodes):
        moved = _Mover(graph).run()
        if moved is graph:
            break
        graph = moved
    return graph


class _Mover:
    """One traversal of a graph's nodes; `origin` holds source and order of each Transpose."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.fixed = rewriting.fixed(graph)
        self.readers = graph.readers()
        self.absorbed = layouts.absorbed(graph, self.readers, self.fixed)
        self.infos = dict(graph.infos)
        self.origin: dict[str, tuple[str, layouts.Permutation]] = {}
        self.reshaped: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.new: list[TensorInfo] = []
        self.changed = False

    def run(self) -> Graph:
        """Return the graph with its Transposes moved, or the same graph if none can move."""
        for given in self.graph.nodes:
            node = rewriting.renamed(given, self.names)
            if node.op_type == "Transpose" and not node.domain:
                self._merge(node)
            elif not self._sink(node):
                self.nodes.append(node)
            if node.op_type == "Reshape" and not node.domain:
                self.reshaped[node.outputs[0]] = node.inputs[0]
        if not self.changed:
            return self.graph
        return drop_dead_nodes.drop_dead_nodes(
            rewriting.rewritten(self.graph, self.nodes, *self.new)
        )

    def _value(self, name: str, shape: Sequence[int], dtype: str) -> str:
        self.infos[name] = TensorInfo(name, dtype, tuple(shape))
        self.new.append(self.infos[name])
        return name

    def _transpose(self, source: str, made: str, order: layouts.Permutation) -> None:
        """Add a Transpose and record its output's origin."""
        self.nodes.append(
            Node(internal(made, "transpose"), "Transpose", (source,), (made,), {"perm": order})
        )
        self.origin[made] = source, order

    def _merge(self, node: Node) -> None:
        """Merge a Transpose with the one before it, which may be before a Reshape."""
        source, made = node.inputs[0], node.outputs[0]
        order = layouts.permutation(node, self.infos[source].rank)
        behind = self.reshaped.get(source, "")
        if source in self.origin:
            base, before = self.origin[source]
            order = tuple(before[axis] for axis in order)
            self.changed = True
        elif behind in self.origin and self._pass_reshape(node, order, behind):
            return
        else:
            base = source
        if order == tuple(range(len(order))) and made not in self.fixed:
            self.names[made] = base
            self.changed = True
        elif base == source:
            self.nodes.append(node)
            self.origin[made] = base, order
        else:
            self._transpose(base, made, order)

    def _pass_reshape(self, node: Node, order: layouts.Permutation, behind: str) -> bool:
        """Replace Transpose - Reshape - Transpose by Transpose - Reshape; tell whether it can."""
        made = self.infos[node.outputs[0]]
        base, before = self.origin[behind]
        moved = layouts.before_reshape(
            self.infos[behind].dims, self.infos[node.inputs[0]].dims, order
        )
        if moved is None:
            return False
        whole = tuple(before[axis] for axis in moved)
        if whole != tuple(range(len(whole))):
            dims = self.infos[base].dims
            inner = self._value(
                internal(made.name, "moved"), [dims[axis] for axis in whole], made.dtype
            )
            self._transpose(base, inner, whole)
            base = inner
        reshape, shape = rewriting.reshape(self.graph, base, made)
        self.nodes.append(reshape)
        self.new.append(shape)
        self.changed = True
        return True

    def _sink(self, node: Node) -> bool:
        """Move a node before its Transposes if that reduces their number; tell whether it does."""
        read = {name: self.origin[name] for name in node.inputs if name in self.origin}
        if not read or len({order for _, order in read.values()}) > 1:
            return False
        order = next(iter(read.values()))[1]
        made = node.outputs[0]
        change = layouts.through(self.infos, node, order, self.origin)
        dying = sum(map(self._dies, read))
        if (
            change is None
            or not dying
            or (dying == 1 and made not in self.absorbed and not change.is_end)
        ):
            return False
        if change.axes is None:
            inputs = [self._moved(name, order, change) for name in node.inputs]
        else:
            self.new.append(rewriting.constant(internal(made, "axes"), change.axes))
            inputs = [self.origin[node.inputs[0]][0], self.new[-1].name]
        changed = replace(node, inputs=tuple(inputs), attributes=change.attributes)
        self.changed = True
        if change.is_end:
            self.nodes.append(changed)
            return True
        info = self.infos[made]
        dims = [0] * info.rank
        for axis, dim in zip(change.order, info.dims, strict=True):
            dims[axis] = dim
        inner = self._value(internal(made, "moved"), dims, info.dtype)
        self.nodes.append(replace(changed, outputs=(inner,)))
        self._transpose(inner, made, change.order)
        return True

    def _dies(self, name: str) -> bool:
        """Tell whether a Transpose becomes unread once its readers have moved before it."""
        is_last = name not in self.fixed and len(self.readers.get(name, ())) == 1
        return is_last or name in self.absorbed

    def _moved(self, name: str, order: layouts.Permutation, change: layouts.Change) -> str:
        """Return the name of an input before the Transpose; constants are transposed here."""
        if name in self.origin:
            return self.origin[name][0]
        info = self.infos.get(name)
        if info is None or info.constant is None or not change.is_transposed(info):
            return name
        back = tuple(np.argsort(order).tolist())

        def turned(array: np.ndarray) -> np.ndarray:
            whole = array.reshape((1,) * (len(back) - array.ndim) + array.shape)
            return np.ascontiguousarray(whole.transpose(back))

        array = constant_cache.derive(("turned", back), turned, info.constant)
        axes = "".join(map(str, back))
        self.new.append(rewriting.constant(internal(name, f"turned by {axes}"), array))
        self.infos[self.new[-1].name] = self.new[-1]
        return self.new[-1].name
