"""Templates: plan a new size by the trace of an earlier plan, without deciding anything anew.

A model with upper bounds is planned once for its bounds, and once with symbols for its open sizes,
in memory that is laid out for the bounds. The trace becomes a function from sizes to a plan, which
returns a plan only if every comparison comes out as it did in the trace. Visited by lab 11.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vklab import settings
from vklab.errors import VklabError
from vklab.graph import bounds
from vklab.plan.options import Facts
from vklab.plan.templates import arrays, writer
from vklab.plan.templates.symbols import Symbol, Trace, UntraceableError
from vklab.types import TensorInfo

__all__ = ["Template", "extend", "trace"]

# Traces of no later use, after which each further one takes an earlier use.
MOST_WASTED = 4
# Templates of one graph; the one whose last use is longest ago is dropped.
MOST_TEMPLATES = 32
# A size of 0 or 1 is not traced: broadcasting and empty tensors make its plan special.
LEAST_TRACED = 2
Infos = Mapping[str, TensorInfo]
Make = Callable[[Infos, Facts], Any]
Axes = tuple[tuple[tuple[str, int], ...], ...]
_UNSUITABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, VklabError)
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Template:
    """A function that builds plans, and what must hold for it besides its guards.

    Attributes:
        fixed: dtypes, and sizes that are no symbols; the size of a symbol is None.
        axes: for each symbol the (value, axis) pairs that have its size.
        build: returns the plan for the size of each symbol, or None.
        uses: the number of plans that it has made.
    """

    fixed: Any
    axes: Axes
    build: Callable[..., Any]
    uses: int = 0

    def plan(self, infos: Infos) -> Any:
        """Return the plan for these infos; None if a full plan may be another."""
        if _fixed(infos, self.axes) != self.fixed:
            return None
        sizes = [{infos[name].shape[axis] for name, axis in axes} for axes in self.axes]
        if any(len(each) != 1 for each in sizes):
            return None
        try:
            plan = self.build(*(each.pop() for each in sizes))
        except _UNSUITABLE as error:  # such as 1 // size, before any guard excludes 0
            log.info("no plan from a template: %r", error)
            return None
        self.uses += plan is not None
        return plan


def extend(
    make: Make, before: Any, infos: Infos, facts: Facts, memo: MutableSequence[Any]
) -> Any:  # fmt: skip
    """Return an extended plan, from a template if one fits.

    Args:
        make: makes a full plan.
        before: the plan that is extended.
        infos: as in `plan.extend`.
        facts: as in `plan.extend`.
        memo: a template for each trace, None for one that failed, the one used last at the end;
            this function appends to it.
    """
    limits = before.options.upper_bounds
    largest = {info.name: info for info in bounds.at_bounds(before.rest.inputs, limits)}
    # Placement depends on speeds and free memory; values in a plan's key have no trace.
    is_placed = len(before.devices) > 1 or before.options.placement
    is_known = any(info.constant is not None or not info.is_static
                   for info in (*infos.values(), *largest.values()))  # fmt: skip
    is_largest = all(infos[name].shape == info.shape for name, info in largest.items())
    if is_placed or is_known or is_largest or settings.get("DISABLE_TEMPLATES"):
        return make(infos, facts)
    for template in reversed(memo):
        if template and (plan := template.plan(infos)) is not None:
            memo.append(memo.pop(memo.index(template)))  # tried first the next time
            return plan
    uses = [each.uses - 1 if each else 0 for each in memo]
    if uses.count(0) <= MOST_WASTED + sum(uses):
        memo[:] = [*memo[1 - MOST_TEMPLATES :],
                   trace(make, before.rest.inputs, infos, largest, facts)]  # fmt: skip
        if memo[-1] and (plan := memo[-1].plan(infos)) is not None:
            return plan
    return make(infos, facts)


def trace(
    make: Make, rest: Sequence[TensorInfo], infos: Infos, largest: Infos, facts: Facts
) -> Template | None:
    """Return a template whose trace is a plan for these infos; None if it cannot be traced.

    Args:
        make: makes a full plan.
        rest: the values that the rest of the model reads; open dimensions of one name are equal.
        infos: as in `plan.extend`.
        largest: the same infos at the upper bounds.
        facts: as in `plan.extend`.
    """
    axes = _symbol_axes(rest, infos, largest)
    record = Trace()
    symbols: list[Symbol] = []
    shapes = {name: list[Any](info.shape) for name, info in infos.items()}
    for number, places in enumerate(axes):
        name, axis = places[0]
        size, most = infos[name].dims[axis], largest[name].dims[axis]
        traced = size if size >= LEAST_TRACED else most - 1
        symbols.append(Symbol(record, f"n{number}", traced, most))
        for name, axis in places:
            shapes[name][axis] = symbols[-1]
    symbolic = replace(facts, evaluate=functools.partial(arrays.evaluate, facts.evaluate))
    given = {name: replace(info, shape=tuple(shapes[name])) for name, info in infos.items()}
    try:
        build = writer.write(record, symbols, make(given, symbolic)) if symbols else None
    except (*_UNSUITABLE, UntraceableError, MemoryError) as error:
        log.info("no template: %r", error)
        return None
    return Template(_fixed(infos, axes), axes, build) if build else None


def _symbol_axes(rest: Sequence[TensorInfo], infos: Infos, largest: Infos) -> Axes:
    """Return the axes that share each symbol: those of one name whose size is below its bound."""
    shared: dict[Any, list[tuple[str, int]]] = {}
    for info in rest:
        for axis, name in enumerate(info.shape):
            size, most = infos[info.name].dims[axis], largest[info.name].dims[axis]
            if isinstance(name, str) and size < most > LEAST_TRACED:
                shared.setdefault(name, []).append((info.name, axis))
    return tuple(map(tuple, shared.values()))


def _fixed(infos: Infos, axes: Axes) -> Any:
    """Return the dtypes and shapes of values with None for each size in `axes`."""
    shapes = {name: list[int | str | None](info.shape) for name, info in infos.items()}
    for name, axis in (place for places in axes for place in places):
        shapes[name][axis] = None
    return {name: (info.dtype, shapes[name]) for name, info in infos.items()}
