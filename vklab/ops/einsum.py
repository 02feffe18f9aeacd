"""Dispatch Einsum as matrix products of two operands at a time, read by strides.

The axes of two operands are sorted into batch axes (in both, kept), rows or columns (in one) and
summed axes. A group of axes without a common stride is copied into another order first.
Visited by lab 08. Source: ONNX Einsum-12.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass, field

from vklab.errors import ModelError
from vklab.ops.dtypes import table
from vklab.ops.elementwise import merge_axes, move
from vklab.ops.inputs import require, same
from vklab.ops.linear import PRODUCTS, product
from vklab.ops.registry import Result, operator, output
from vklab.types import Dispatch, TensorInfo, dense_strides

ELLIPSIS_AXES = "0123456789"


@dataclass(frozen=True)
class _Operand:
    """Hold a tensor with named axes; strides are in elements, 0 along a broadcast axis."""

    info: TensorInfo
    strides: dict[str, int]


@dataclass
class _Work:
    """Collect dispatches and their scratch tensors; `sizes` has the length of every axis."""

    dtype: str
    sizes: dict[str, int]
    dispatches: list[Dispatch] = field(default_factory=list)
    scratch: list[TensorInfo] = field(default_factory=list)

    def shape(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in names)

    def make(self, names: Sequence[str]) -> TensorInfo:
        info = output(self.dtype, self.shape(names))
        self.scratch.append(info)
        return info

    def dense(self, info: TensorInfo, names: Sequence[str]) -> _Operand:
        strides = dense_strides(self.shape(names))
        return _Operand(info, dict(zip(names, strides, strict=True)))


def parse_equation(
    equation: str, ranks: Sequence[int]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the axis names of every operand and of the result; digits name an ellipsis' axes.

    Raises ModelError for an equation that does not fit the operands. Source: ONNX Einsum-12.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"equation {equation!r} has {len(terms)} operands; inputs: {len(ranks)}")
    most = 0
    for term, rank in zip(terms, ranks, strict=True):
        named = len(term.replace("...", "", 1))
        if named > rank or (named < rank and "..." not in term):
            raise ModelError(f"{term!r} of equation {equation!r} does not fit rank {rank}")
        most = max(most, rank - named)
    spelled = []
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term.replace("...", "", 1))
        spelled.append(tuple(term.replace("...", ELLIPSIS_AXES[most - count : most])))
    if not arrow:
        once = sorted(c for c in set(left) & set(string.ascii_letters) if left.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    result = tuple(right.replace("...", ELLIPSIS_AXES[:most]))
    known = {name for term in spelled for name in term}
    allowed = set(string.ascii_letters + ELLIPSIS_AXES)
    if len(set(result)) < len(result) or not set(result) <= known or not known <= allowed:
        raise ModelError(
            f"equation {equation!r}: the result's axes must be distinct letters that an operand has"
        )
    return spelled, result


@operator("Einsum", since=12)
def einsum(*Inputs: TensorInfo, equation: str) -> Result:
    """Multiply and sum tensors by the names of their axes. Source: ONNX Einsum-12."""
    require(PRODUCTS, *Inputs)
    terms, names = parse_equation(equation, [info.rank for info in Inputs])
    sizes: dict[str, int] = {}
    for term, info in zip(terms, Inputs, strict=True):
        for name, dim in zip(term, info.dims, strict=True):
            if sizes.setdefault(name, dim) in (1, dim):
                sizes[name] = dim
            elif dim != 1:
                raise ModelError(
                    f"axis {name!r} of {equation!r} has lengths {sizes[name]} and {dim}"
                )
    work = _Work(same(*Inputs), sizes)
    operands = [_named(info, term) for info, term in zip(Inputs, terms, strict=True)]
    result = output(work.dtype, work.shape(names))
    while len(operands) > 2:
        first, second, *rest = operands
        kept = set(names).union(*(operand.strides for operand in rest))
        inner = [n for n in {**first.strides, **second.strides} if n in kept]
        partial = work.make(inner)
        _multiply(work, first, second, inner, partial)
        operands = [work.dense(partial, inner), *rest]
    if len(operands) == 1:
        summed = set(operands[0].strides) - set(names)
        if not summed:
            strides = [operands[0].strides[name] for name in names]
            return Result((result,), move(operands[0].info, strides, result))
        one = table([1], work.dtype)
        work.scratch.append(one)
        operands.append(_Operand(one, dict.fromkeys(summed, 0)))
    _multiply(work, operands[0], operands[1], names, result)
    return Result((result,), tuple(work.dispatches), tuple(work.scratch))


def _named(info: TensorInfo, term: Sequence[str]) -> _Operand:
    """Return a tensor with named axes; a name that occurs twice selects a diagonal."""
    strides = dict.fromkeys(term, 0)
    for name, dim, stride in zip(term, info.dims, dense_strides(info.dims), strict=True):
        strides[name] += stride if dim != 1 else 0
    return _Operand(info, strides)


def _multiply(
    work: _Work, a: _Operand, b: _Operand, names: Sequence[str], result: TensorInfo
) -> None:
    """Multiply two operands into `result`: axes in the order of `names`, all others summed."""
    both = [name for name in names if name in a.strides and name in b.strides]
    rows = [name for name in names if name in a.strides and name not in b.strides]
    columns = [name for name in names if name not in a.strides]
    summed = [name for name in {**a.strides, **b.strides} if name not in names]
    alone = [(x, [n for n in summed if n not in y.strides]) for x, y in ((a, b), (b, a))]
    # An axis that only one operand sums gets stride 0 in the other operand.
    a, b = (
        _Operand(x.info, {**x.strides, **dict.fromkeys(own, 0)})
        for x, own in ((a, alone[1][1]), (b, alone[0][1]))
    )
    a, b = _ordered(work, a, both, rows, summed), _ordered(work, b, both, columns, summed)
    order = (*both, *rows, *columns)
    target = result if list(order) == list(names) else work.make(order)
    a_row, a_sum = _step(work, a, rows), _step(work, a, summed)
    b_column, b_sum = _step(work, b, columns), _step(work, b, summed)
    assert None not in (a_row, a_sum, b_column, b_sum), "ordered"
    sizes = tuple(math.prod(work.shape(group)) for group in (rows, columns, summed))
    strides = [tuple(x.strides[name] for name in both) for x in (a, b)]
    work.dispatches += product(
        a.info,
        b.info,
        None,
        target,
        (sizes[0], sizes[1], sizes[2]),
        (a_row or 0, a_sum or 0),
        (b_sum or 0, b_column or 0),
        work.shape(both),
        strides,
    )
    if target is not result:
        strides_of = work.dense(target, order).strides
        work.dispatches += move(target, [strides_of[name] for name in names], result)


def _step(work: _Work, operand: _Operand, names: Sequence[str]) -> int | None:
    """Return the stride of several axes merged into one; None if they cannot be merged."""
    _, (strides,) = merge_axes(work.shape(names), [[operand.strides[name] for name in names]])
    return (strides or (0,))[0] if len(strides) < 2 else None


def _ordered(work: _Work, operand: _Operand, *groups: Sequence[str]) -> _Operand:
    """Return an operand whose groups of axes each have one stride, copied if necessary."""
    if all(_step(work, operand, group) is not None for group in groups[1:]):
        return operand
    names = [name for group in groups for name in group]
    copy = work.make(names)
    work.dispatches += move(operand.info, [operand.strides[name] for name in names], copy)
    return work.dense(copy, names)
