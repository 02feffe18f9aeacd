"""Plain nodes drawn by seed, and keys of the model "asked" that are too short.

Visited by lab 09b.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab.course.labs.growing_plans import PlainNode

__all__ = ["KEYS", "draw_nodes", "fault_of", "nodes_of", "request_text"]

Key = Callable[[np.ndarray, np.ndarray], Any]
KEYS: Mapping[str, Key] = {
    "(x.shape, int(to.sum()))": lambda x, to: (x.shape, int(to.sum())),
    "(x.size, to.tobytes())": lambda x, to: (x.size, to.tobytes()),
    "(x.shape, int(to[0]))": lambda x, to: (x.shape, int(to[0])),
    "(x.shape, tuple(sorted(to.tolist())))": lambda x, to: (x.shape, tuple(sorted(to.tolist()))),
    "''.join(map(str, (*x.shape, *to.tolist())))":
        lambda x, to: "".join(map(str, (*x.shape, *to.tolist()))),
}


def nodes_of(text: str, mark: str = "") -> list[PlainNode]:
    """Return nodes from text: "v=Relu(x); a,b=TopK(v,k)". A node is named by its first output.

    Args:
        text: the nodes.
        mark: ends the name of each value that a node makes.
    """
    nodes: list[PlainNode] = []
    new: dict[str, str] = {}
    for each in text.split(";"):
        made, _, rest = each.strip().partition("=")
        op, _, reads = rest.rstrip(")").partition("(")
        inputs = tuple(new.get(value, value) for value in reads.split(","))
        new.update({value: value + mark for value in made.split(",")})
        outputs = tuple(new[value] for value in made.split(","))
        nodes.append(("n_" + outputs[0], op, inputs, outputs))
    return nodes


def draw_nodes(chance: np.random.Generator, count: int) -> list[PlainNode]:
    """Draw nodes of which some stop and most go on."""
    nodes: list[PlainNode] = []
    values, numbers = ["x", "x2"], ["c", "to"]  # tensors, and what is used as a shape
    for number in range(count):
        op = str(chance.choice(["Relu", "Add", "MatMul", "Shape", "Gather", "Concat", "Reshape",
                                "Reshape", "Expand", "TopK", "NonZero", "Compress"],
                               p=[.14, .14, .1, .12, .08, .08, .1, .06, .05, .05, .05, .03]))
        v, near = f"v{number}", [*values[-4:], values[0]]
        if op in ("Gather", "Concat"):
            reads = tuple(str(chance.choice(numbers[-3:])) for _ in range(2))
            numbers.append(v)
        elif op in ("Reshape", "Expand", "TopK"):
            reads = str(chance.choice(near)), str(chance.choice([*numbers, values[-1]]))
        else:
            reads = tuple(str(chance.choice(near)) for _ in range(1 + (op in ("Add", "MatMul"))))
        if op == "Shape":
            numbers.append(v)
        elif v not in numbers:
            values.append(v)
        nodes.append((f"n{number}", op, reads, (v, f"i{number}") if op == "TopK" else (v,)))
    return nodes


def fault_of(x: np.ndarray, to: np.ndarray) -> str:
    """Return why the model "asked" cannot run with these inputs; "" if it can."""
    if x.dtype != np.float32 or x.ndim != 2 or not x.size:
        return "x must be a float32 matrix with an element"
    if to.dtype != np.int64 or to.ndim != 1 or not to.size or not (to > 0).all():
        return "to must be a vector of positive int64 numbers"
    if np.prod(to.astype(object)) != x.size:
        return f"Reshape of {x.size} elements to {to.tolist()} is not possible"
    return ""


def request_text(stages: Sequence[Mapping[str, np.ndarray]]) -> str:
    """Return a request of several stages in words."""
    return " then ".join(", ".join(f"{name} {array.dtype}{list(array.shape)}" + (
        f" = {array.tolist()}" if array.size < 4 else "") for name, array in stage.items())
        for stage in stages)  # fmt: skip
