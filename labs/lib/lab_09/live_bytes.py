"""Orders of nodes, and the bytes that are alive at each step of an order. Visited by lab 09b.

Nodes are plain data: {name: (bytes of its result, names of the nodes whose results it reads)}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vklab.graph import graph as graphs
from vklab.graph.graph import Node
from vklab_course import words
from vklab_course.piece import Given, Piece
from vklab_labs.shared.grouping import Work
from vklab_labs.shared.recorded_graphs import NAMES, RecordedGraph, recorded

__all__ = ["BRANCHES", "END", "SMALL_PEAK", "as_work", "broken", "in_runtime", "live_bytes",
           "must_be_live", "order_nodes"]  # fmt: skip

END = "end"
# Two branches of one result: a, b, c and d, e, f.
BRANCHES: Work = {"x": (4, ()), "a": (8, ("x",)), "d": (2, ("x",)), "b": (6, ("a",)),
                  "e": (8, ("d",)), "c": (1, ("b",)), "f": (3, ("e",)), "g": (2, ("c", "f")),
                  END: (0, ("g",))}  # fmt: skip


def live_bytes(work: Work, order: Sequence[str]) -> list[int]:
    """Return the bytes alive at each step: from the step that makes a result to its last reader.

    At a step its inputs and its result are alive together. A result that nobody reads is alive at
    its own step only.

    Args:
        work: the nodes.
        order: their names, each after those that it reads; or only the beginning of an order, to
            whose end everything stays alive that one of the other nodes reads.
    """
    last = {name: step for step, name in enumerate(order)}
    others = [name for name in work if name not in last]
    for step, name in enumerate(order):
        last.update(dict.fromkeys(work[name][1], step))
    for name in others:
        last.update({read: len(order) - 1 for read in work[name][1] if read in last})
    alive = [0] * len(order)
    for first, name in enumerate(order):
        for step in range(first, last[name] + 1):
            alive[step] += work[name][0]
    return alive


def must_be_live(work: Work) -> dict[str, int]:
    """Return for each node the bytes that are alive when it runs, in every order.

    These are its inputs, its result, and each result of an earlier node that must stay, because a
    node that depends on this one reads it.
    """
    before: dict[str, set[str]] = {}
    waiting = list(work)
    while waiting:
        name = next(n for n in waiting if all(read in before for read in work[n][1]))
        waiting.remove(name)
        before[name] = {name}.union(*(before[read] for read in work[name][1]))
    alive: dict[str, set[str]] = {name: {name, *work[name][1]} for name in work}
    for later, (_, reads) in work.items():
        for name in before[later] - {later}:
            alive[name].update(before[name].intersection(reads))
    return {name: sum(work[other][0] for other in alive[name]) for name in work}


def broken(work: Work, order: Any) -> str:
    """Return what is wrong with an order, as a sentence; "" for a valid one."""
    if not isinstance(order, list | tuple) or any(type(name) is not str for name in order):
        return f"expected a list of names, got {words.short(order)}"
    done: set[str] = set()
    for step, name in enumerate(order):
        if name not in work:
            return f"step {step} is {words.short(name)}, which is no node of this graph"
        if name in done:
            return f"step {step} runs {name} for the second time"
        late = [read for read in work[name][1] if read not in done]
        if late:
            return f"step {step} runs {name} before {late[0]}, whose result it reads"
        done.add(name)
    missing = [name for name in work if name not in done]
    return (
        f"{len(missing)} of {len(work)} nodes are missing, such as {missing[0]}" if missing else ""
    )


def as_work(graph: RecordedGraph) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return a recorded graph as plain nodes, in its order.

    A value from outside is a node that reads nothing. The node `end` reads the outputs.
    """
    makers = graph.makers()
    work: dict[str, tuple[int, tuple[str, ...]]] = {
        value: (graph.size_bytes(value), ()) for value in graph.inputs
    }
    for node in graph.nodes:
        reads = dict.fromkeys(makers.get(value, value) for value in graph.activations(node))
        work[node.name] = sum(map(graph.size_bytes, node.outputs)), tuple(reads)
    return work | {END: (0, tuple(dict.fromkeys(makers.get(v, v) for v in graph.outputs)))}


def in_runtime(
    order: Callable[[Work], Sequence[str]], graphs: Iterable[RecordedGraph]
) -> Callable[[Iterable[Node], Iterable[str]], tuple[Node, ...]]:
    """Return a replacement of `onnx_import.topological_order` that asks a student's function.

    The import knows names only, so sizes come from the recorded graphs; each value of another
    model counts one byte. The replacement raises AssertionError for an order that is not valid.
    """
    recorded = tuple(graphs)

    def topological_order(nodes: Iterable[Node], known: Iterable[str]) -> tuple[Node, ...]:
        given = tuple(nodes)
        made = [value for node in given for value in node.outputs if value]
        graph = next((each for each in recorded if each.shapes.keys() >= {*made}), None)
        return order_nodes(order, given, {v: graph.size_bytes(v) for v in made} if graph else {})

    return topological_order


def order_nodes(
    order: Callable[[Work], Sequence[str]], nodes: Sequence[Node], sizes: Mapping[str, int]
) -> tuple[Node, ...]:
    """Return the runtime's nodes in a student's order, after a check of that order.

    Args:
        order: the student's function.
        nodes: the runtime's nodes.
        sizes: bytes of values; one that is not listed counts one byte.
    """
    makers = {value: node.name for node in nodes for value in node.outputs if value}
    work: dict[str, tuple[int, tuple[str, ...]]] = {}
    for node in nodes:
        reads = tuple(dict.fromkeys(makers[value] for value in node.reads if value in makers))
        work[node.name] = sum(sizes.get(value, 1) for value in node.outputs if value), reads
    mine = order(dict(work))
    fault = broken(work, mine)
    if fault:
        raise AssertionError(f"your order of {len(work)} nodes: {fault}")
    by_name = {node.name: node for node in nodes}
    return tuple(by_name[name] for name in mine)


def _runtime_order(params: Mapping[str, Any]) -> Callable[[Work], list[str]]:
    """Return the runtime's order behind the signature of exercise 4.

    The runtime orders nodes before it knows a size: nodes that are ready keep the given order.
    """

    def order_names(work: Work) -> list[str]:
        nodes = [Node(name, "", tuple(reads), (name,)) for name, (_, reads) in work.items()]
        return [node.name for node in graphs.topological_order(nodes, ())]

    return order_names


def _ordering(order: Given) -> Callable[..., Any]:
    return in_runtime(order.value, map(recorded, NAMES))


SMALL_PEAK = Piece(
    "topological_order",
    "vklab.graph.onnx_import.topological_order",
    {"09b-4": _runtime_order},
    _ordering,
)
