"""A graph whose nodes compute in float32 or in float16: bytes moved, noise, and its picture.

A node is a dictionary: name, operator, reads (names), weights and result (elements), noise.
Visited by lab 16.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course.picture import Picture
from vklab_labs.shared.networks import draw_network

__all__ = ["Node", "bytes_moved", "casts", "draw_nodes", "draw_precisions", "noise_of"]

Node = Mapping[str, Any]
# Operators: chance, has weights, factor of the noise.
OPERATORS = {"MatMul": (0.4, True, 1.0), "Gelu": (0.2, False, 0.7), "LayerNorm": (0.2, False, 2.0),
             "Softmax": (0.2, False, 1.6)}  # fmt: skip


def casts(nodes: Sequence[Node], wide: Collection[str]) -> list[str]:
    """Return the names of values that are cast, once each: a reader has the other precision.

    Args:
        nodes: in execution order; the first is the input, always float32.
        wide: names of nodes that stay float32.
    """
    is_wide = {node["name"]: node["name"] in wide for node in nodes}
    is_wide[nodes[0]["name"]] = True
    cast = {
        read for node in nodes for read in node["reads"] if is_wide[read] != is_wide[node["name"]]
    }
    if not is_wide[nodes[-1]["name"]]:
        cast.add(nodes[-1]["name"])  # the model's output is float32
    return [node["name"] for node in nodes if node["name"] in cast]


def bytes_moved(nodes: Sequence[Node], wide: Collection[str]) -> int:
    """Return the bytes that all nodes and casts move.

    Args:
        nodes: in execution order; the first is the input.
        wide: names of nodes that stay float32.
    """
    result = {node["name"]: node["result"] for node in nodes}
    total = sum(6 * result[name] for name in casts(nodes, wide))
    for node in nodes[1:]:
        elements = node["weights"] + node["result"] + sum(result[read] for read in node["reads"])
        total += elements * (4 if node["name"] in wide else 2)
    return int(total)


def noise_of(nodes: Sequence[Node], wide: Collection[str]) -> int:
    """Return the noise of the nodes that compute in float16.

    Args:
        nodes: in execution order; the first is the input.
        wide: names of nodes that stay float32.
    """
    return sum(int(node["noise"]) for node in nodes[1:] if node["name"] not in wide)


def draw_nodes(random: np.random.Generator, count: int = 15) -> tuple[list[dict[str, Any]], int]:
    """Draw a residual graph, and the most noise that it may have.

    Args:
        random: the source of chance.
        count: number of nodes, with the input.
    """
    width = 64 * int(random.integers(2, 9))
    nodes: list[dict[str, Any]] = [{
        "name": "input", "operator": "Input", "reads": [], "weights": 0, "result": width,
        "noise": 0}]  # fmt: skip
    kinds, chances = [*OPERATORS], [row[0] for row in OPERATORS.values()]
    for number in range(1, count):
        reads = [nodes[-1]["name"]]
        operator = str(random.choice(kinds, p=chances))
        if number > 2 and random.random() < 0.35:
            operator = "Add"
            reads.append(nodes[int(random.integers(max(0, number - 5), number - 1))]["name"])
        heavy, factor = OPERATORS.get(operator, (0, False, 0.5))[1:]
        nodes.append({
            "name": f"n{number}", "operator": operator, "reads": reads,
            "weights": width * int(random.integers(2, 13)) if heavy else 0,
            "result": int(width * random.choice([0.5, 1, 1, 2, 4])),
            "noise": 1 + int(factor * 10 ** random.uniform(1, 2.7))})  # fmt: skip
    total = sum(node["noise"] for node in nodes)
    return nodes, int(total * random.uniform(0.25, 0.6))


def draw_precisions(nodes: Sequence[Node], wide: Collection[str], caption: str) -> Picture:
    """Draw a graph, coloured by precision, with its casts.

    Args:
        nodes: in execution order; the first is the input.
        wide: names of nodes that stay float32.
        caption: the line below.
    """
    cast = casts(nodes, wide)
    kept = {nodes[0]["name"], *wide}
    colours = {n["name"]: "orange" if n["name"] in kept else "sky" for n in nodes}
    notes = {
        n["name"]: [f"{n['name']}, noise {n['noise']}", *(["cast"] * (n["name"] in cast))]
        for n in nodes
    }
    return draw_network(
        [(n["name"], n["operator"], n["reads"], [n["name"]]) for n in nodes],
        alt=f"float32: {', '.join(n['name'] for n in nodes if n['name'] in kept)}. Values that "
        f"are cast: {', '.join(cast) or 'none'}.",
        caption=caption,
        colours=colours,
        notes=notes,
        legend={"orange": "float32", "sky": "float16"},
    )
