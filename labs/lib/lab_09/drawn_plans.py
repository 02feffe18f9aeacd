"""Plain nodes and requests drawn by seed, and keys of the model "asked" that are too short.

Visited by lab 09b.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_labs.lab_09.growing_plans import PlainNode

__all__ = ["KEYS", "draw_nodes", "draw_requests", "fault_of", "nodes_of", "request_text"]

Key = Callable[[np.ndarray, np.ndarray], Any]
KEYS: Mapping[str, Key] = {
    "(x.shape, int(to.sum()))": lambda x, to: (x.shape, int(to.sum())),
    "(x.size, to.tobytes())": lambda x, to: (x.size, to.tobytes()),
    "(x.shape, int(to[0]))": lambda x, to: (x.shape, int(to[0])),
    "(x.shape, tuple(sorted(to.tolist())))": lambda x, to: (x.shape, tuple(sorted(to.tolist()))),
    "''.join(map(str, (*x.shape, *to.tolist())))": lambda x, to: "".join(
        map(str, (*x.shape, *to.tolist()))
    ),
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
        op = str(
            chance.choice(
                [
                    "Relu",
                    "Add",
                    "MatMul",
                    "Shape",
                    "Gather",
                    "Concat",
                    "Reshape",
                    "Reshape",
                    "Expand",
                    "TopK",
                    "NonZero",
                    "Compress",
                ],
                p=[0.14, 0.14, 0.1, 0.12, 0.08, 0.08, 0.1, 0.06, 0.05, 0.05, 0.05, 0.03],
            )
        )
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


def draw_requests(
    chance: np.random.Generator, step: int
) -> Iterator[tuple[str, list[Any], list[Any], str]]:
    """Yield sequences of requests: (part of the exercise, requests, needs, in words).

    Args:
        chance: the source of chance.
        step: what the first dimension of a shape is rounded up to a multiple of.
    """

    def one(*shape: int, value: float = 0, dtype: str = "float32") -> Any:
        return [{"x": np.full(shape, value, dtype)}]

    def asked(*to: int, value: float = 0, dtype: str = "int64") -> Any:
        return [{"x": np.full((2, 6), value, np.float32), "to": np.array(to, dtype)}]

    x, none, to = one(2, 6), [()], [("to",)]
    yield "key", [], none, "no requests"
    yield "key", [x, one(2, 6, value=1), x], none, "equal shapes, other numbers"
    shapes = (
        (6, 2),
        (12,),
        (2, 6, 1),
        (0, 6),
        (0, 7),
        (2, 3, 6),
        (2, 5, 6),
        (2, 6, 5),
        (2, 3, 6, 1),
        (2, 3, 6, 2),
        (2, 6),
    )
    yield "key", [x, *(one(*shape) for shape in shapes)], none, "other shapes"
    kinds = "int32", "float16", "float32"
    yield "key", [x, *(one(2, 6, dtype=kind) for kind in kinds)], none, "other dtypes"
    yield (
        "key",
        [
            asked(3, 4),
            asked(4, 3),
            asked(3, 4, value=9),
            asked(12),
            asked(3, 2, 2),
            asked(3, 4, dtype="int32"),
            asked(3, 4),
        ],
        to,
        "to is needed",
    )
    yield (
        "key",
        [asked(0, 0, dtype="int32"), asked(0), asked(0, 0, dtype="int32")],
        to,
        "equal bytes, other dtypes",
    )
    yield (
        "key",
        [
            asked(3, 4),
            asked(4, 3),
            asked(12),
            asked(3, 4, dtype="int32"),
            asked(*[1] * (step + 1)),
            asked(12),
        ],
        none,
        "to is not needed",
    )
    yield (
        "key",
        [
            [asked(*sizes)[0] | {"k": np.array(k)}]
            for sizes, k in (
                ([12], [1]),
                ([12], [2]),
                ([6, 2], [2]),
                ([12], [1]),
                ([1], [12]),
                ([6], [2, 2]),
            )
        ],
        [("to", "k")],
        "to and k are needed",
    )
    flat, high = np.zeros((2, 6)), np.zeros((2, 7))
    yield (
        "key",
        [[{"x": x, "y": y}] for x, y in ((flat, flat), (flat, high), (high, flat), (flat, high))],
        none,
        "two arrays",
    )
    long = [np.full(2000, value) for value in (0.1, 0.1, 0.1, np.nextafter(0.1, 1))]
    long[1][1000] = 7
    yield "key", [[{"x": each}] for each in long], [("x",)], "x is needed, and is long"
    yield (
        "key",
        [one(1, n) for n in (*range(1, 151), 1, 150)],
        none,
        "150 shapes, then two of them again",
    )
    yield (
        "key",
        [one(1, value=number) for number in (0.0, -0.0, np.nan, np.nan, 0.0)],
        [("x",)],
        "x is needed",
    )
    for counts in ((1, step, step + 1, 2 * step, 2 * step + 1, 1), (step - 1, 0, step, 1)):
        yield "key", [one(n, 6) for n in counts], none, f"{counts} rows"

    fresh = itertools.count()  # numbers that belong to no key

    def path(a: int, b: int, c: int = 0) -> Any:
        stages = [
            *one(a * step - b % 2, 4, value=next(fresh)),
            {"where": np.full((2, b), next(fresh))},
        ]
        return stages + [{"k": np.array([c])}] * bool(c)

    two, three = [(), ()], [(), (), ("k",)]
    yield ("tree", [path(3, 5), path(3, 5), path(3, 6), path(2, 5), path(3, 5)], two, "two stages")
    yield (
        "tree",
        [path(3, 5, 1), path(3, 5, 2), path(3, 6, 1), path(3, 6, 2), path(2, 5, 1), path(3, 5, 1)],
        three,
        "three stages",
    )
    yield (
        "tree",
        [x + one(n, 2) for n in (1, step, step + 1, 2 * step, step)],
        two,
        "rows in the second stage",
    )
    for needs in ([("x",), ()], [(), ("x",)]):
        yield (
            "tree",
            [one(1, value=a) + one(1, value=b) for a, b in ((1, 1), (1, 2), (2, 1), (1, 1))],
            needs,
            f"needs {needs}",
        )
    pairs = (1, 5), (1, 6), (2, 5), (1, 5), (3, 5), (1, 6), (2, 5), (1, 5)
    yield "tree", [path(*pair) for pair in pairs], two, "three caches below the first"
    for part in ("key", "tree", "tree"):
        drawn = chance.integers(1, 4, (14, 3)).tolist()
        yield part, [path(*each) for each in drawn], three, "drawn requests"


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
    return " then ".join(
        ", ".join(
            f"{name} {array.dtype}{list(array.shape)}"
            + (f" = {array.tolist()}" if array.size < 4 else "")
            for name, array in stage.items()
        )
        for stage in stages
    )
