"""Sizes that may depend on the batch N: a number, "N", or a multiple such as "128*N".

Visited by lab 09.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Dim", "Reshape", "Shape", "ShapeRule", "broadcast", "complete", "dim", "elements",
           "infer_graph", "text"]  # fmt: skip

Dim = int | str
Shape = list[Dim]
# Operator, shapes of the inputs, attributes -> shape of the output.
ShapeRule = Callable[[str, list[Shape], Mapping[str, Any]], Shape]
# Shape of the input, target, allowzero -> shape of the output.
Reshape = Callable[[Shape, list[int], int], Shape]


def elements(shape: Iterable[Dim]) -> tuple[int, int]:
    """Return (factor, power): a tensor of this shape has factor * N**power elements."""
    factor, power = 1, 0
    for size in shape:
        if isinstance(size, str):
            found = re.fullmatch(r"(?:(\d+)\*)?N", size)
            if not found:
                raise ValueError(f"{size!r} is no size: write a number, 'N' or such as '128*N'")
            factor, power = factor * int(found[1] or 1), power + 1
        else:
            factor *= size
    return factor, power


def dim(factor: int, power: int) -> Dim:
    """Return the size factor * N**power: 7 for (7, 0), "N" for (1, 1), "7*N" for (7, 1)."""
    if power == 0 or factor == 0:
        return factor
    if power != 1:
        raise ValueError(f"{factor} * N**{power} is no size of this lab")
    return "N" if factor == 1 else f"{factor}*N"


def broadcast(*shapes: Shape) -> Shape:
    """Return the common shape of arrays that are added."""
    rank, common = max(len(shape) for shape in shapes), list[Dim]()
    for column in zip(*([*[1] * (rank - len(shape)), *shape] for shape in shapes), strict=True):
        sizes = {size for size in column if size != 1}
        if len(sizes) > 1:
            raise ValueError(f"one column has the sizes {column}")
        common.append(sizes.pop() if sizes else 1)
    return common


def complete(reshape: Reshape) -> ShapeRule:
    """Return the rules of some operators; the one of Reshape is given."""

    def rule(op_type: str, shapes: list[Shape], about: Mapping[str, Any]) -> Shape:
        first = shapes[0]
        if op_type == "Relu":
            return first
        if op_type == "Transpose":
            return [first[axis] for axis in about["perm"]]
        if op_type == "Concat":
            axis = about["axis"]
            others = {tuple(shape[:axis] + shape[axis + 1 :]) for shape in shapes}
            counts, powers = zip(*(elements([shape[axis]]) for shape in shapes), strict=True)
            if len(others) > 1 or len({*powers}) > 1:
                raise ValueError("the shapes do not fit beside each other")
            return [*first[:axis], dim(sum(counts), powers[0]), *first[axis + 1 :]]
        if op_type in ("MatMul", "Gemm"):
            second = shapes[1][::-1] if about.get("transB") else shapes[1]
            if first[-1] != second[-2]:
                raise ValueError(f"inner sizes {first[-1]} and {second[-2]} differ")
            return [*broadcast(first[:-2], second[:-2]), first[-2], second[-1]]
        if op_type == "Conv":
            filters, channels = shapes[1][:2]
            if first[1] != channels:
                raise ValueError(f"{first[1]} channels meet filters for {channels}")
            return [first[0], filters, *_windows(first[2:], about)]
        if op_type in ("MaxPool", "AveragePool"):
            return [*first[:2], *_windows(first[2:], about)]
        if op_type == "Add":
            return broadcast(*shapes)
        if op_type == "Reshape":
            return reshape(first, about["target"], about["allowzero"])
        raise LookupError(f"no rule for {op_type}")

    return rule


def _windows(sizes: Shape, about: Mapping[str, Any]) -> Shape:
    """Return how many windows fit along each axis; pads hold all beginnings, then all ends."""
    counts: Shape = []
    for axis, size in enumerate(map(int, sizes)):
        before, after = about["pads"][axis], about["pads"][axis + len(sizes)]
        free = before + size + after - about["kernel_shape"][axis]
        if free < 0:
            raise ValueError(f"a window of {about['kernel_shape'][axis]} does not fit {size}")
        counts.append(free // about["strides"][axis] + 1)
    return counts


def text(shape: Sequence[Dim]) -> str:
    """Return a shape in a few letters: 128*N x 768."""
    return " x ".join(map(str, shape)) or "one number"


def infer_graph(
    nodes: Iterable[tuple[str, str, Sequence[str], Sequence[str], Mapping[str, Any]]],
    shapes: Mapping[str, Sequence[Dim]], shape_of: ShapeRule,
) -> tuple[dict[str, Shape], str]:  # fmt: skip
    """Return the shapes of all values; then "", or the first node without a shape and the reason.

    Args:
        nodes: name, operator, inputs, outputs and attributes of each node, in an order that works.
        shapes: shapes of the graph's inputs and initializers.
        shape_of: a rule that raises where no shape is right.
    """
    known = {name: list(shape) for name, shape in shapes.items()}
    for name, op_type, reads, writes, attributes in nodes:
        given = [known[value] for value in reads if value]
        try:
            known[writes[0]] = shape_of(op_type, given, attributes)
        except (ValueError, LookupError) as error:
            return known, f"{name} ({op_type} of {', '.join(map(text, given))}): {error}"
    return known, ""
