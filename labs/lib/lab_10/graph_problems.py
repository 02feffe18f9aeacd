"""Refuse plain graphs that are not in order, with a sentence for the student. Visited by lab 10."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vklab_course import words
from vklab_labs.lab_10 import rewriting
from vklab_labs.lab_10.rewriting import PlainGraph

__all__ = ["problem_of", "witness_problem"]

KEYS = ("inputs", "constants", "outputs", "nodes")
# Of a witness, so that a check stays short.
MOST_NODES, MOST_AXES, MOST_GIVEN, MOST_ELEMENTS = 12, 4, 64, 4096


def problem_of(graph: Any) -> str:
    """Return a sentence about the first reason why something is no graph in order, or ""."""
    return _first(graph, _problems)


def witness_problem(graph: Any) -> str:
    """Return a sentence about why something is no small graph of float32 numbers, or ""."""
    return _first(graph, _unfit) or problem_of(graph)


def _first(graph: Any, problems: Any) -> str:
    if type(graph) is not dict or not all(key in graph for key in KEYS):
        return f"expected a graph, a dictionary with {', '.join(KEYS)}, got {words.short(graph)}"
    try:
        return next(problems(graph), "")
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        return f"expected a graph in the form that graph_of gives it: {error}"


def _problems(graph: PlainGraph) -> Iterator[str]:
    outputs, makers = graph["outputs"], []
    infos = rewriting.infos_of({**graph, "infos": {}, "nodes": []})
    for node in graph["nodes"]:
        if (
            not isinstance(node, list | tuple)
            or len(node) != 4
            or not all(isinstance(part, list | tuple) for part in node[2:])
        ):
            yield f"expected a node (made, operator, reads, perm), got {words.short(node)}"
        if not all(isinstance(name, str) for name in (node[0], *node[2])):
            yield f"names are texts, got {words.short(node)}"
        makers.append(node[0])
    for made, op, reads, perm in graph["nodes"]:
        if op not in (*rewriting.OPERATORS, "Transpose"):
            yield f"there is no operator {words.short(op)}"
        count = 1 if op in (*rewriting.UNARY, "Transpose") else 2
        if len(reads) != count or (perm and op != "Transpose"):
            yield (
                f"{words.short(made)}: {op} reads {count} value{'s' * (count > 1)}"
                f"{'' if op == 'Transpose' else ' and has no perm'}, got {words.short(reads)}"
            )
        for name in reads:
            if name not in infos:
                late = "it, or a later node, makes" if name in makers else "nobody makes"
                yield f"{words.short(made)} reads {words.short(name)}, which {late}"
        if made in infos:
            yield f"{words.short(made)} is made twice"
        try:
            infos[made] = rewriting.info_of(op, [infos[name] for name in reads], perm)
        except ValueError as error:
            yield f"{words.short(made)}: the shapes of its operands do not fit: {error}"
        if np.prod(infos[made][1]) > MOST_ELEMENTS:
            yield f"{words.short(made)} has more than {MOST_ELEMENTS} elements"
    if not isinstance(outputs, list | tuple) or not outputs or len({*outputs}) < len(outputs):
        yield f"the outputs are a list of different names, got {words.short(outputs)}"
    lost = [name for name in outputs if name not in makers]
    if lost:
        yield f"no node makes the output {words.short(lost[0])}"


def _unfit(graph: PlainGraph) -> Iterator[str]:
    if len(graph) > len(KEYS):
        yield f"expected no more than {', '.join(KEYS)}, got {words.short([*graph])}"
    if not 1 <= len(graph["nodes"]) <= MOST_NODES:
        yield f"expected 1 to {MOST_NODES} nodes, got {len(graph['nodes'])}"
    given = {name: (dtype, shape, True) for name, (dtype, shape) in graph["inputs"].items()}
    for name, array in graph["constants"].items():
        if name in given:
            yield f"{words.short(name)} is an input and a constant"
        if not isinstance(array, np.ndarray):
            yield f"the constant {words.short(name)} is no array"
        given[name] = str(array.dtype), array.shape, bool(np.isfinite(array).all())
    for name, (dtype, shape, finite) in given.items():
        if not isinstance(name, str) or dtype != "float32" or not finite:
            yield f"{words.short(name)} does not consist of finite float32 numbers"
        whole = all(isinstance(size, int) and size >= 0 for size in shape)
        if not whole or len(shape) > MOST_AXES or np.prod(shape) > MOST_GIVEN:
            yield (
                f"{words.short(name)} has shape {words.short(shape)}; at most {MOST_AXES} axes "
                f"and {MOST_GIVEN} elements are allowed"
            )
        if not np.prod(shape):
            yield f"{words.short(name)} has no elements: nothing in it can change"
