"""Orders of nodes: graphs to sort, and the guard between an answer and the runtime.

A node is (name, operator, inputs, outputs). Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from vklab.graph import graph as graphs
from vklab.graph.graph import Node
from vklab_course.piece import Given, Piece
from vklab_labs.shared import recorded_graphs

__all__ = ["ORDER", "TINY", "PlainNode", "asking", "ring", "window"]

PlainNode = tuple[str, str, tuple[str, ...], tuple[str, ...]]
TINY: list[PlainNode] = [
    ("a", "Conv", ("x",), ("p",)),
    ("b", "Relu", ("q",), ("r",)),
    ("c", "Add", ("p", "r"), ("q",)),
    ("d", "Relu", ("r",), ("s",)),
]


def asking(order_nodes: Callable[[list[PlainNode], list[str]], Any]) -> Callable[..., Any]:
    """Return a function for the place of the runtime's `topological_order`.

    It hands plain data to `order_nodes`, and raises an AssertionError with a sentence for an answer
    that a driver must not see.
    """

    def topological_order(nodes: Iterable[Node], known: Iterable[str]) -> tuple[Node, ...]:
        given, made = {node.name: node for node in nodes}, set(known)
        answer = order_nodes(
            [(node.name, node.op_type, node.reads, node.outputs) for node in given.values()],
            sorted(made),
        )
        assert isinstance(answer, tuple | list) and len(answer) == 2, f"{answer!r} is no pair"
        word, names = answer
        assert word == "order", f"you found {word!r} in a graph without faults"
        assert isinstance(names, tuple | list), f"{names!r} is no list of names"
        assert sorted(map(str, names)) == sorted(given), "the order has other nodes than the graph"
        for name in names:
            lost = [value for value in given[name].reads if value not in made]
            assert not lost, f"{name} stands before the node that makes {lost[0]}"
            made |= set(given[name].outputs)
        return tuple(given[name] for name in names)

    return topological_order


def _runtime_order(params: Mapping[str, Any]) -> Callable[..., tuple[str, list[str]]]:
    """Return the runtime's order behind the signature of exercise 3.

    Ready nodes keep the order in which they are given. A fault raises ModelError.
    """

    def order_nodes(nodes: Iterable[PlainNode], given: Iterable[str]) -> tuple[str, list[str]]:
        made = [Node(name, op, tuple(reads), tuple(writes)) for name, op, reads, writes in nodes]
        return "order", [node.name for node in graphs.topological_order(made, given)]

    return order_nodes


def _ordering(order: Given) -> Callable[..., Any]:
    return asking(order.value)


ORDER = Piece(
    "topological_order",
    "vklab.graph.onnx_import.topological_order",
    {"09-3": _runtime_order},
    _ordering,
)


def window(random: np.random.Generator, name: str, count: int) -> tuple[list[PlainNode], list[str]]:
    """Return neighbours in a recorded graph, renamed, in any order; and the values they start from.

    Args:
        random: the source of chance.
        name: the recorded graph.
        count: number of nodes.
    """
    graph = recorded_graphs.recorded(name).renamed(random).shuffled(random).part(random, count)
    nodes = [(each.name, each.op_type, each.inputs, each.outputs) for each in graph.nodes]
    mixed = [nodes[n] for n in random.permutation(len(nodes))]
    return mixed, [*graph.inputs, *sorted(graph.weights)]


def ring(random: np.random.Generator, length: int, tail: int) -> list[PlainNode]:
    """Return a cycle of nodes, a chain that begins at it, and a node before it, in any order.

    The end of the chain comes first.

    Args:
        random: the source of chance.
        length: nodes of the cycle.
        tail: nodes of the chain.
    """
    names = [f"n{n}" for n in random.permutation(length + tail + 1)]
    nodes: list[PlainNode] = [
        (names[n], "Add", (f"v{(n - 1) % length}", "x"), (f"v{n}",)) for n in range(length)
    ]
    nodes += [(names[n], "Relu", (f"v{n - 1}",), (f"v{n}",)) for n in range(length, length + tail)]
    nodes.append((names[-1], "Relu", ("x",), ("before",)))
    end = nodes.pop(length + tail - 1)
    return [end, *(nodes[n] for n in random.permutation(len(nodes)))]
