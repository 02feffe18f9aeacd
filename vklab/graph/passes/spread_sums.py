"""spread_sums: add a constant to the parts of a Concat rather than to the whole.

Each part is then finished by the kernel that makes it, and a constant part is known. Vision
transformers add positions to a class token and patches in this form. Visited by lab 10.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.ops.dtypes import FLOATS
from vklab.types import TensorInfo

MOST_PARTS = 4


def spread_sums(graph: Graph, width: int = 0) -> Graph:
    """Replace Add(Concat(a, b), c), where c is constant, by Concat(Add(a, c1), Add(b, c2)).

    Args:
        graph: the graph.
        width: elements of 16 bytes, which do not matter here.
    """
    del width
    makers = {node.outputs[0]: node for node in graph.nodes}
    single = rewriting.read_once(graph)
    nodes, new, gone = list[Node](), list[TensorInfo](), set[str]()
    for node in graph.nodes:
        found = _operands(graph, node, makers)
        if found is None or found[0].outputs[0] not in single:
            nodes.append(node)
            continue
        made, infos = _spread(graph, node, *found)
        nodes += made
        new += infos
        gone.add(found[0].outputs[0])
    if not gone:
        return graph
    return rewriting.rewritten(graph, [n for n in nodes if n.outputs[0] not in gone], *new)


def _operands(graph: Graph, node: Node, makers: dict[str, Node]) -> tuple[Node, TensorInfo] | None:
    """Return the Concat and the constant that a node adds, if the constant has its shape."""
    if node.op_type != "Add" or node.domain or graph.infos[node.outputs[0]].dtype not in FLOATS:
        return None
    for whole, other in itertools.permutations(node.inputs):
        concat, info = makers.get(whole), graph.infos[other]
        if (
            concat
            and concat.op_type == "Concat"
            and not concat.domain
            and len(concat.inputs) <= MOST_PARTS
            and info.constant is not None
            and graph.infos[whole].is_static
            and info.shape == graph.infos[whole].shape
        ):
            return concat, info
    return None


def _spread(
    graph: Graph, add: Node, concat: Node, whole: TensorInfo
) -> tuple[list[Node], list[TensorInfo]]:
    """Return an Add for each part, and the Concat of them, with the infos of their values."""
    axis = int(concat.attributes["axis"]) % whole.rank
    nodes, infos, names, start = list[Node](), list[TensorInfo](), list[str](), 0
    for number, name in enumerate(concat.inputs):
        part = graph.infos[name]
        stop = start + part.dims[axis]
        cut = functools.partial(np.take, indices=range(start, stop), axis=axis)
        array = constant_cache.derive(("part", axis, start, stop), cut, rewriting.value(whole))
        piece = rewriting.constant(internal(whole.name, f"part{number}"), array)
        made = replace(part, name=internal(add.outputs[0], f"part{number}"), constant=None)
        nodes.append(Node(made.name, "Add", (name, piece.name), (made.name,), {}))
        infos += [piece, made]
        names.append(made.name)
        start = stop
    return [*nodes, replace(concat, name=add.name, inputs=tuple(names), outputs=add.outputs)], infos
