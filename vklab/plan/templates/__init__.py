"""Templates: plan a new size by the trace of an earlier plan, without deciding anything anew.

A model with upper bounds is planned once for its bounds, and once with symbols for its open sizes,
in memory that is laid out for the bounds. The trace becomes a function from sizes to a plan, which
returns a plan only if every comparison comes out as it did in the trace. Visited by lab 11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any

from vklab import settings
from vklab.base import catalogue
from vklab.errors import VklabError
from vklab.graph import bounds
from vklab.plan.options import Facts
from vklab.types import TensorInfo

__all__ = ["Template", "extend"]

# Traces of no later use, after which each further one takes an earlier use.
MOST_WASTED = 4
# Templates of one graph; the one whose last use is longest ago is dropped.
MOST_TEMPLATES = 32
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
    is_known = any(
        info.constant is not None or not info.is_static
        for info in (*infos.values(), *largest.values())
    )
    is_largest = all(infos[name].shape == info.shape for name, info in largest.items())
    if is_placed or is_known or is_largest or settings.get("DISABLE_TEMPLATES"):
        return make(infos, facts)
    for template in reversed(memo):
        if template and (plan := template.plan(infos)) is not None:
            memo.append(memo.pop(memo.index(template)))  # tried first the next time
            return plan
    uses = [each.uses - 1 if each else 0 for each in memo]
    if uses.count(0) <= MOST_WASTED + sum(uses):
        traced = catalogue.step("trace sizes")(make, before.rest.inputs, infos, largest, facts)
        made = Template(_fixed(infos, traced[0]), *traced) if traced else None
        memo[:] = [*memo[1 - MOST_TEMPLATES :], made]
        if memo[-1] and (plan := memo[-1].plan(infos)) is not None:
            return plan
    return make(infos, facts)


def _fixed(infos: Infos, axes: Axes) -> Any:
    """Return the dtypes and shapes of values with None for each size in `axes`."""
    shapes = {name: list[int | str | None](info.shape) for name, info in infos.items()}
    for name, axis in (place for places in axes for place in places):
        shapes[name][axis] = None
    return {name: (info.dtype, shapes[name]) for name, info in infos.items()}
