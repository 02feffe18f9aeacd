"""Combine two descriptions of element-wise work: compute a value instead of reading it.

Pure data in and out; the fusions beside this file decide where it pays. Visited by lab 10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vklab.ops.dtypes import FLOATS
from vklab.plan.fusion import views
from vklab.types import Formula, Operand, Pointwise, StridedView, TensorInfo


def inline(
    outer: Pointwise, number: int, inner: Pointwise, roots: Mapping[str, str]
) -> Pointwise | None:
    """Return `outer` with one operand computed by `inner`, as are all equal operands.

    Args:
        outer: the work that reads the value.
        number: the operand of `outer` to replace.
        inner: the work that computes the value.
        roots: the value whose memory each value shares.

    Returns None where the views do not compose, or the dtypes differ.
    """
    read = outer.operands[number]
    if inner.target is not None or inner.formulas[-1].dtype != read.dtype:
        return None
    composed = views.compose(
        outer.shape, read.view, inner.shape, [operand.view for operand in inner.operands]
    )
    if composed is None:
        return None
    cut, inner_views = composed
    served = _equal(outer.operands, number, roots)
    own = [replace(o, view=views.split_view(o.view, cut)) for o in outer.operands]
    others = [replace(o, view=view) for o, view in zip(inner.operands, inner_views, strict=True)]
    kept = [o for n, o in enumerate(own) if n not in served]
    operands, slots = _unique([*kept, *others], roots)
    numbers = iter(range(len(kept)))
    count, steps = len(operands), len(inner.formulas)
    of_inner = slots[len(kept) :]
    if of_inner == list(range(count)):  # the operands keep their numbers
        begun = inner.formulas
    else:
        begun = _renumbered(inner.formulas, [*of_inner, *range(count, count + steps)])
    of_outer = [count + steps - 1 if n in served else slots[next(numbers)] for n in range(len(own))]
    of_outer += range(count + steps, count + steps + len(outer.formulas))
    shape = views.split_axes(outer.shape, cut)
    target = outer.target and views.split_view(outer.target, cut)
    formulas = (*begun, *_renumbered(outer.formulas, of_outer))
    return _merged(Pointwise(shape, tuple(operands), formulas, target))


def _equal(operands: Sequence[Operand], number: int, roots: Mapping[str, str]) -> set[int]:
    """Return the numbers of the operands that read the same elements as one of them."""
    keys = [(roots[o.info.name], o.view, o.dtype) for o in operands]
    return {n for n, key in enumerate(keys) if key == keys[number]}


def _unique(given: Sequence[Operand], roots: Mapping[str, str]) -> tuple[list[Operand], list[int]]:
    """Return the distinct operands, and for each given one its number among them."""
    keys: list[tuple[str, str, StridedView]] = []
    operands: list[Operand] = []
    slots: list[int] = []
    for operand in given:
        key = (roots.get(operand.info.name, operand.info.name), operand.dtype, operand.view)
        if key not in keys:
            keys.append(key)
            operands.append(operand)
        slots.append(keys.index(key))
    return operands, slots


def _renumbered(formulas: Sequence[Formula], numbers: Sequence[int]) -> tuple[Formula, ...]:
    return tuple(
        replace(f, arguments=tuple(numbers[argument] for argument in f.arguments)) for f in formulas
    )


def _merged(given: Pointwise) -> Pointwise:
    each = [operand.view for operand in given.operands]
    shape, merged = views.merge(given.shape, [*each, *([given.target] if given.target else [])])
    operands = tuple(replace(o, view=view) for o, view in zip(given.operands, merged, strict=False))
    return replace(
        given, shape=shape, operands=operands, target=merged[-1] if given.target else None
    )


def prepared(given: Pointwise) -> Pointwise:
    """Return the work over as few axes as possible, constant one-element operands as numbers."""
    given = _merged(given)
    known = {n: o for n, o in enumerate(given.operands) if _is_number(o)}
    if not known:
        return given
    kept = [o for n, o in enumerate(given.operands) if n not in known]
    count, extra = len(kept), len(known)
    variable = iter(range(count))
    literal = iter(range(count, count + extra))
    numbers = [next(literal) if n in known else next(variable) for n in range(len(given.operands))]
    numbers += range(count + extra, count + extra + len(given.formulas))
    literals = tuple(
        Formula("p0", (), (float(_element(operand)),), "float32") for operand in known.values()
    )
    formulas = (*literals, *_renumbered(given.formulas, numbers))
    return replace(given, operands=tuple(kept), formulas=formulas)


def _is_number(operand: Operand) -> bool:
    known = operand.info.constant is not None and operand.dtype in FLOATS
    return known and operand.info.dtype == operand.dtype and not any(operand.view.strides)


def _element(operand: Operand) -> float:
    constant = operand.info.constant
    assert constant is not None
    return float(constant.reshape(-1)[operand.view.start])


def along(given: Pointwise, value: TensorInfo, roots: Mapping[str, str]) -> Pointwise | None:
    """Return the work iterated in the memory order of one operand, which comes first and is dense.

    Args:
        given: the work to reorder; its result gets a target view if its own order differs.
        value: the operand's tensor.
        roots: the value whose memory each value shares.

    Returns None if the work does not read every element of the value exactly once.
    """
    root = roots[value.name]
    reads = [o for o in given.operands if roots[o.info.name] == root]
    if math.prod(given.shape) != value.count or any(
        (o.view, o.dtype) != (reads[0].view, reads[0].dtype) for o in reads
    ):
        return None
    axes = views.order(given.shape, reads[0].view)
    if axes is None:
        return None
    target = given.target or StridedView.dense(given.shape)
    shape = tuple(given.shape[axis] for axis in axes)

    def turned(view: StridedView) -> StridedView:
        return StridedView(tuple(view.strides[axis] for axis in axes), view.start)

    first = next(n for n, o in enumerate(given.operands) if o is reads[0])
    rank = {
        n: number
        for number, n in enumerate(
            [first, *(n for n, o in enumerate(given.operands) if roots[o.info.name] != root)]
        )
    }
    numbers = [rank.get(n, 0) for n in range(len(given.operands))]
    numbers += range(len(rank), len(rank) + len(given.formulas))
    operands = tuple(replace(given.operands[n], view=turned(given.operands[n].view)) for n in rank)
    target = turned(target)
    dense = given.target is None and target.is_dense(shape)
    formulas = _renumbered(given.formulas, numbers)
    return _merged(Pointwise(shape, operands, formulas, None if dense else target))
