"""Dispatch reductions of a row of elements to one. ONNX: ReduceSum, ReduceMax, ReduceL2.

A dispatch reduces one run of neighbouring axes. Several runs, and rows too long for one workgroup,
take several dispatches, each of which reduces the result of the one before. Visited by lab 07.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vklab.ops.dtypes import BOOL, ELEMENTS, FLOATS, NUMBERS, type_defines
from vklab.ops.elementwise import move
from vklab.ops.inputs import known_integers, normal_axes, require
from vklab.ops.registry import Answer, Result, operator, output
from vklab.ops.rows import Rows, Work, divide_rows, rows_of, value_dtype
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo, dense_strides

LIMITS = {
    "float": ("asfloat(0xff800000u)", "asfloat(0x7f800000u)"),
    "double": ("double(asfloat(0xff800000u))", "double(asfloat(0x7f800000u))"),
    "int": ("int(0x80000000u)", "int(0x7fffffff)"),
    "uint": ("0u", "0xffffffffu"),
    "int64_t": ("(int64_t(1)<<63)", "~(int64_t(1)<<63)"),
    "uint64_t": ("uint64_t(0)", "~uint64_t(0)"),
}


@dataclass(frozen=True)
class Kind:
    """Describe a reduction: expressions of shaders/ops/reduce.slang, and its dtypes.

    `empty` is the result for no elements; LOWEST and HIGHEST stand for limits of the dtype.
    """

    combine: str = "plus"
    map: str = "a"
    finish: str = "total"
    empty: float = 0.0
    dtypes: frozenset[str] = NUMBERS


LOWEST, HIGHEST = -math.inf, math.inf
KINDS = {
    "ReduceSum": Kind(),
    "ReduceMean": Kind(finish="mean(total)", empty=math.nan),
    "ReduceMax": Kind("larger", empty=LOWEST, dtypes=NUMBERS | BOOL),
    "ReduceMin": Kind("smaller", empty=HIGHEST, dtypes=NUMBERS | BOOL),
    "ReduceProd": Kind("times", empty=1.0),
    "ReduceL1": Kind(map="magnitude(a)"),
    "ReduceL2": Kind(map="a*a", finish="sqrt(total)"),
    "ReduceSumSquare": Kind(map="a*a"),
    "ReduceLogSum": Kind(finish="log(total)", empty=LOWEST, dtypes=FLOATS),
    "ReduceLogSumExp": Kind(map="exp(a-finite(shift))", finish="raised(log(total),shift)",
                            empty=LOWEST, dtypes=FLOATS),
}  # fmt: skip
# The factor keeps the root of a square from being rounded down to the next smaller integer.
WHOLE_ROOT = "V(sqrt(float(total))*1.0000003)"


def reduce_work(
    kind: Kind, X: TensorInfo, axes: Sequence[int], result: TensorInfo,
    shift: TensorInfo | None = None, work: Work | None = None, dims: Sequence[int] | None = None,
) -> Work:  # fmt: skip
    """Return the work that reduces X over axes into `result`, with one element per row.

    Args:
        kind: the expressions of the reduction.
        X: the tensor that is reduced.
        axes: the reduced axes, counted from the front.
        result: the tensor that is written.
        shift: one number per row for the expressions of the kind; the axes must be neighbours.
        work: dispatches that run before; default none.
        dims: a shape of X that `axes` refer to; default X's own.

    Source: Harris, "Optimizing Parallel Reduction in CUDA", 2007.
    """
    work = work or Work()
    dims, gone = list(dims or X.dims), set(axes)
    terms = math.prod(dims[axis] for axis in gone)
    shape = [(dim, axis in gone) for axis, dim in enumerate(dims) if dim != 1] or [(1, True)]
    current, first = X, True
    while first or any(reduced for _, reduced in shape):
        stop = max((i + 1 for i, (_, reduced) in enumerate(shape) if reduced), default=len(shape))
        start = stop
        while start > 0 and shape[start - 1][1]:
            start -= 1
        before, run, after = shape[:start], shape[start:stop], shape[stop:]
        outer, columns, inner = (math.prod(dim for dim, _ in axes) for axes in (before, run, after))
        rows = divide_rows(rows_of(outer, columns, inner))
        shape = [*before, *([(rows.parts, True)] if rows.parts > 1 else []), *after]
        last = not any(reduced for _, reduced in shape)
        wide = value_dtype(X.dtype)
        target = result if last else work.temporary(wide, (rows.count,))
        step = Kind(
            kind.combine, kind.map if first else "a", kind.finish if last else "total", kind.empty
        )
        used = shift if "shift" in step.map + step.finish else None
        work.dispatches += (_reduce(step, current, rows, target, used, terms),)
        current, first = target, False
    return work


def _reduce(
    kind: Kind, X: TensorInfo, rows: Rows, result: TensorInfo, shift: TensorInfo | None, terms: int
) -> Dispatch:
    value = ELEMENTS[value_dtype(X.dtype)].value
    whole = value not in ("float", "double")
    identity = {"plus": "0", "times": "1", "larger": LIMITS[value][0], "smaller": LIMITS[value][1]}
    combine = kind.combine + ("_integer" if whole and kind.empty in (LOWEST, HIGHEST) else "")
    finish = WHOLE_ROOT if whole and kind.finish == "sqrt(total)" else kind.finish
    storage, _, store = type_defines("Y", result.dtype)
    return Dispatch(
        kernel="reduce",
        reads=(("x_buffer", X), *((("shift_buffer", shift),) if shift else ())),
        writes=(("y_buffer", result),),
        workgroups=rows.workgroups,
        push=(*rows.push, ("part", rows.part), ("parts", rows.parts), ("terms", terms)),
        defines=(
            *type_defines("X", X.dtype)[:2],
            storage,
            store,
            ("V", value),
            ("SHIFT", str(int(shift is not None))),
            ("WIDE", str(int(rows.wide))),
            ("COMBINE", combine),
            ("IDENTITY", identity[kind.combine]),
            ("MAP", kind.map),
            ("FINISH", finish),
        ),
        constants=(("WORKGROUP", rows.lanes),),
        flops=X.count,
        iterations=rows.iterations + 16,
        stores=True,
        loads=True,
    )


def reduce_axes(
    name: str, X: TensorInfo, axes: Sequence[int] | None, keepdims: int, noop: int = 0
) -> Result:
    """Reduce X over axes by a kind of KINDS.

    Args:
        name: the op_type, a key of KINDS.
        X: the tensor that is reduced.
        axes: the reduced axes; None or empty for all axes.
        keepdims: keep reduced axes with size one.
        noop: with empty axes, reduce each element by itself.
    """
    kind = KINDS[name]
    require(kind.dtypes, X)
    chosen = normal_axes(tuple(axes or ()), X.rank)
    chosen = tuple(range(X.rank)) if not chosen and not noop else chosen
    sizes = enumerate(X.dims)
    shape = [1 if i in chosen else dim for i, dim in sizes if keepdims or i not in chosen]
    result = output(X.dtype, shape)
    if X.count == 0:
        return Result((output(X.dtype, shape, np.full(shape, _empty(kind, X.dtype))),))
    if result.count == X.count and kind.map == "a" and kind.finish in ("total", "mean(total)"):
        return view(X, shape)
    if name != "ReduceLogSumExp":
        work = reduce_work(kind, X, chosen, result)
        return Result((result,), work.dispatches, work.scratch)
    work = Work()
    X, chosen = _neighbours(X, chosen, work)
    wide = value_dtype(X.dtype)
    largest = work.temporary(wide, (result.count,))
    reduce_work(KINDS["ReduceMax"], X, chosen, largest, None, work)
    reduce_work(kind, X, chosen, result, largest, work)
    return Result((result,), work.dispatches, work.scratch)


def _empty(kind: Kind, dtype: str) -> np.generic:
    """Return the result for no elements, as a number of the dtype."""
    real = np.dtype(dtype)
    if dtype in FLOATS or dtype == "float64":
        return real.type(kind.empty)
    if dtype in BOOL:
        return real.type(kind.empty == HIGHEST)
    limits = np.iinfo(real)
    known = {LOWEST: limits.min, HIGHEST: limits.max}
    return real.type(known.get(kind.empty, 0 if math.isnan(kind.empty) else kind.empty))


def _neighbours(
    X: TensorInfo, axes: tuple[int, ...], work: Work
) -> tuple[TensorInfo, tuple[int, ...]]:
    """Return X and axes if the axes are neighbours, or a copy of X with these axes last."""
    gone = [axis for axis in axes if X.dims[axis] != 1]
    if not gone or all(X.dims[a] == 1 or a in gone for a in range(min(gone), max(gone))):
        return X, axes
    order = [axis for axis in range(X.rank) if axis not in axes] + sorted(axes)
    dense = dense_strides(X.dims)
    copy = work.temporary(X.dtype, [X.dims[axis] for axis in order])
    work.dispatches += move(X, [dense[axis] for axis in order], copy)
    return copy, tuple(range(X.rank - len(axes), X.rank))


def _by_input(name: str) -> Callable[..., Answer]:
    def reduce(
        data: TensorInfo, axes: TensorInfo | None = None, *,
        keepdims: int = 1, noop_with_empty_axes: int = 0,
    ) -> Answer:  # fmt: skip
        known = None if axes is None else known_integers(axes, "axes")
        return reduce_axes(name, data, known, keepdims, noop_with_empty_axes)

    return reduce


def _by_attribute(name: str) -> Callable[..., Answer]:
    def reduce(data: TensorInfo, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Answer:
        return reduce_axes(name, data, axes, keepdims)

    return reduce


# ONNX made `axes` an input in opset 13 for sums, in 18 for the others.
for _name in KINDS:
    operator(_name, since=13 if _name == "ReduceSum" else 18)(_by_input(_name))
    operator(_name, since=1)(_by_attribute(_name))
