"""Rules that made each dispatch of a plan: the model is planned without one rule after the other.

Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vklab import settings
from vklab.base import catalogue, stages
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo, Dispatch

# The nodes of a dispatch, its kernel, and the rules without which it would be another.
Row = tuple[str, str, tuple[str, ...]]


def made_by(plan: Plan, again: Callable[[], Plan | None], info: DeviceInfo) -> list[Row]:
    """Return each dispatch with the rules without which the plan would not have it.

    Args:
        plan: the plan of a model.
        again: plans the model anew under the current switches.
        info: the device, which tells which rules can apply.
    """
    made: list[tuple[str, str, list[str]]] = [
        (node, dispatch.kernel, []) for node, dispatch in _named(plan)
    ]
    marks = [_mark(dispatch) for _, dispatch in _named(plan)]
    left_out = settings.names("DISABLE_PASSES")
    for name in dict.fromkeys(row.name for row in catalogue.RULES if _applies(row, info)):
        with settings.settings(DISABLE_PASSES=",".join({*left_out, name})):
            other = again()
        there = {_mark(dispatch) for _, dispatch in _named(other)} if other else set()
        for mark, (_, _, rules) in zip(marks, made, strict=True):
            if mark not in there:
                rules.append(name)
    return [(node, kernel, tuple(rules)) for node, kernel, rules in made]


def _applies(row: stages.Rule | stages.Choice, info: DeviceInfo) -> bool:
    """Tell whether a device can meet a row that can be left out."""
    is_step = isinstance(row, stages.Rule) and row.stage == stages.STEP
    return not is_step and row.on in ("", stages.CPU if info.is_cpu else stages.GPU)


def _named(plan: Plan) -> Iterator[tuple[str, Dispatch]]:
    """Yield every dispatch with the names of its nodes."""
    for chunk in plan.chunks:
        for node, step in zip(chunk.nodes, chunk.steps, strict=True):
            if isinstance(step, Dispatch):
                yield node, step


def _mark(dispatch: Dispatch) -> tuple[Any, ...]:
    """Return what tells a dispatch from others: its kernel, sizes and results."""
    return (
        dispatch.variant,
        dispatch.workgroups,
        dispatch.push,
        dispatch.constants,
        tuple(info.name for info in dispatch.tensors_written),
    )
