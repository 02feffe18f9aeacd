"""Lifetimes of values between an answer and the runtime: dispatches as plain steps, and back.

Visited by lab 11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from vklab.plan import arenas
from vklab.plan.lowering import Lowered
from vklab.plan.memory import Lifetime
from vklab.types import DeviceInfo, Dispatch, TensorInfo
from vklab_course.piece import Given, Piece
from vklab_labs.lab_11.packing import Node
from vklab_labs.shared import machines

__all__ = ["LIFETIMES"]

Lives = dict[str, tuple[int, int]]
VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_REAL = arenas._lifetimes  # while a piece stands at the seam, the name means the piece


def _runtime_lifetimes(params: Mapping[str, Any]) -> Callable[..., Lives]:
    """Return the runtime's lifetimes behind the signature of exercise 1."""

    def find_lifetimes(nodes: Sequence[Node], outputs: Sequence[str]) -> Lives:
        lowered, made = _lowered(nodes)
        lasting = {lowered.roots.get(name, name): 0 for name in outputs}
        placed = {*lowered.roots.values()} - made
        owners = {name: name for name in made}
        info = machines.machine("server")[0]
        found = _REAL(lowered, owners, placed, {}, lasting, info)
        return {life.name: (life.first, life.last) for life in found}

    return find_lifetimes


def _lowered(nodes: Sequence[Node]) -> tuple[Lowered, set[str]]:
    """Return plain steps as the runtime's dispatches, and the values that have bytes of their own.

    A view is a dispatch that touches nothing.
    """
    roots: dict[str, str] = {}
    dispatches, made = [], set()
    for op, reads, writes in nodes:
        for name in reads:
            roots.setdefault(name, name)
        if op in VIEWS:
            roots |= dict.fromkeys(writes, roots[reads[0]])
            reads, writes = (), ()
        roots |= {name: name for name in writes}
        made |= {*writes}
        read, written = (
            tuple((name, TensorInfo(name, "int8", (1,))) for name in names)
            for names in (reads, writes)
        )
        dispatches.append(Dispatch(op, read, written, (1, 1, 1)))
    return Lowered(tuple(dispatches), tuple("" for _ in nodes), roots, {}), made


def _living(find: Given) -> Callable[..., tuple[Lifetime, ...]]:
    """Return a function for the place of the runtime's `_lifetimes` that asks an answer.

    Values that are staged in are no results of a step: they keep the runtime's lifetimes. What an
    answer says is widened to the steps that may run concurrently with the first and the last one.
    """

    def lifetimes(
        lowered: Lowered, owners: Mapping[str, str], placed: set[str], staged_in: arenas.Sizes,
        staged_out: arenas.Sizes, info: DeviceInfo,
    ) -> tuple[Lifetime, ...]:  # fmt: skip
        own = _REAL(lowered, owners, placed, staged_in, staged_out, info)
        got = find.value(_steps(lowered, owners), [owners.get(name, name) for name in staged_out])
        assert isinstance(got, dict), f"{got!r} is no dictionary of lifetimes"
        return tuple(
            life if life.name in staged_in else _verified(life, got, lowered.times) for life in own
        )

    return lifetimes


def _steps(lowered: Lowered, owners: Mapping[str, str]) -> list[Node]:
    """Return dispatches as plain steps; bytes that are written again are read before."""
    steps: list[Node] = []
    seen: set[str] = set()
    for dispatch in lowered.dispatches:
        reads, writes = (
            dict.fromkeys(
                owners.get(root, root) for root in (lowered.roots[i.name] for _, i in each)
            )
            for each in (dispatch.reads, dispatch.writes)
        )
        new = tuple(name for name in writes if name not in seen)
        old = tuple(name for name in {**reads, **writes} if name not in new)
        steps.append((dispatch.kernel, old, new))
        seen |= {*new}
    return steps


def _verified(life: Lifetime, got: Mapping[str, Any], times: Sequence[tuple[int, int]]) -> Lifetime:
    """Return a lifetime as an answer gives it. Raises AssertionError for one that is too short."""
    name, end = life.name, len(times)
    assert name in got, f"{name} has bytes of its own, and you give it no lifetime"
    span = got[name]
    pair = isinstance(span, tuple | list) and len(span) == 2
    assert pair and all(isinstance(step, Integral) for step in span), (
        f"{span!r} is no lifetime (first, last) of {name}"
    )
    first, last = (int(step) for step in span)
    assert 0 <= first <= last <= end, f"{name} lives from {first} to {last}; there are {end} steps"
    first, last = times[first][0] if first < end else end, times[last][1] if last < end else end
    assert first <= life.first and last >= life.last, (
        f"{name} is alive from step {life.first} to {life.last}, you say {first} to {last}"
    )
    return replace(life, first=first, last=last)


LIFETIMES = Piece(
    "lifetimes", "vklab.plan.arenas._lifetimes", {"11-1": _runtime_lifetimes}, _living
)
