"""Try answers inside the runtime, in a process of its own: a model runs with them in their seams.

Each call of an answer has a time limit and is counted. A fault is a sentence: it raised, it hangs,
what it returned cannot be used, or it is never called.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import vklab
from vklab import settings
from vklab.plan import memory
from vklab.plan.plan import Plan
from vklab_course import limits, words
from vklab_course.children.run_limited import run_limited
from vklab_course.definition.exercise import Exercise, exercises_of, find, number_of
from vklab_course.piece import Given, Piece
from vklab_course.places import labs_folder
from vklab_course.student.kept import Kept, KeptError
from vklab_course.swap import swap
from vklab_labs.shared import swapped

__all__ = ["Ran", "Target", "builders", "piece_of", "run"]

CALL_S, RUN_S = 5.0, 120.0
# Arenas that have values of other chunks; those that the host reaches have the model's own, too.
MOVING = (memory.ARRIVING, memory.LEAVING, memory.INPUTS, memory.OUTPUTS)
# Switches of a runtime that does one thing after the other.
NAIVE = {"DISABLE_FUSION": True, "DISABLE_IN_PLACE": True}


@dataclass(frozen=True)
class Target:
    """A model, and how it runs.

    Attributes:
        name: for people.
        model: path or bytes of the file; name of a recorded graph that is only planned.
        planned: plan the recorded graph, run nothing.
        load: arguments of `vklab.load`.
        variables: environment variables of the process, such as those that name drivers.
    """

    name: str
    model: Any
    planned: bool = False
    load: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Return the number of devices that it uses."""
        return max(1, len(self.load.get("devices", ())))


@dataclass(frozen=True)
class Ran:
    """Result of a run or of a plan.

    Attributes:
        facts: counts of its plan.
        outputs: results of the run; None if it was planned only.
        calls: how often each answer was called, by exercise; a kernel: how often it is dispatched.
        chunks: device, number of dispatches, and the chunks that it waits for.
        memory: a drawing of the largest arena, as SVG.
        reason: why nothing ran, or "".
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, np.ndarray] | None = None
    calls: Mapping[str, int] = field(default_factory=dict)
    chunks: Sequence[tuple[str, int, tuple[int, ...]]] = ()
    memory: str = ""
    reason: str = ""


def builders() -> list[Exercise]:
    """Return all exercises that build a piece of the runtime, in the order of the labs."""
    labs = sorted({number_of(path.name) for path in labs_folder().glob("*.ipynb")} - {""})
    return [e for number in labs for e in exercises_of(number).values() if e.builds is not None]


def piece_of(exercise: Exercise) -> Piece:
    """Return the piece that an exercise builds. Raises LookupError if there is none."""
    if exercise.builds is None:
        raise LookupError(f"exercise {exercise.id} builds no piece of the runtime")
    return exercise.builds


def run(target: Target, answers: Sequence[Kept] = (), naive: bool = False) -> Ran:
    """Run or plan a target in a fresh process, with answers in the place of the runtime's own.

    Args:
        target: the model.
        answers: kept answers of pieces that do not exclude each other.
        naive: with the simplest functions in every seam that has some, and without fusion.
    """
    ran = run_limited(
        _run, target, tuple(answers), naive, seconds=RUN_S, variables=dict(target.variables) or None
    )
    return ran.value if ran.status == "returned" else Ran(reason=ran.message)


def _run(target: Target, answers: Sequence[Kept], naive: bool) -> Ran:
    inside = _Inside()
    try:
        with contextlib.ExitStack() as stack:
            if naive:
                stack.enter_context(settings.settings(**NAIVE))
            for path, replacement in _naive() if naive else inside.seams(answers):
                stack.enter_context(swap(path, replacement()))
            if target.planned:
                plan, outputs = swapped.plan_recorded(target.model), None
            else:
                load = functools.partial(vklab.load, **target.load)
                plan, outputs = swapped.run_model(target.model, load)
    except KeptError as error:
        return Ran(reason=str(error))
    except (Exception, limits.LimitReached) as error:
        return Ran(calls=dict(inside.calls), reason=inside.reason(error))
    inside.count_kernels(plan)
    return Ran(_facts(plan), outputs, dict(inside.calls), _chunks(plan), _memory(plan))


def _naive() -> Iterator[tuple[str, Callable[[], Any]]]:
    pieces = {piece.seam: piece for piece in map(piece_of, builders()) if piece.naive is not None}
    for seam, piece in pieces.items():
        yield seam, functools.partial(lambda value: value, piece.naive)


class _Inside:
    """Answers in the runtime of one process: their calls, and what they raised."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._raised: list[tuple[Kept, BaseException]] = []
        self._kernels: dict[str, str] = {}  # exercise by text

    def seams(self, answers: Sequence[Kept]) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield the seams that answers take, each with a function that makes what stands there."""
        mine = {answer.id: answer for answer in answers}
        pieces = {(p.name, p.seam): p for a in answers for p in [piece_of(find(a.id))]}
        for piece in pieces.values():
            givens = [
                self._given(mine[key])
                if key in mine
                else Given(own(find(key).params), find(key).params)
                for key, own in piece.own.items()
            ]
            yield piece.seam, functools.partial(piece.adapter, *givens)

    def _given(self, answer: Kept) -> Given:
        value = answer.value()
        if isinstance(value, str):
            self._kernels[value] = answer.id
        return Given(self._guarded(answer, value) if callable(value) else value, answer.params)

    def _guarded(self, answer: Kept, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*arguments: Any, **named: Any) -> Any:
            self.calls[answer.id] += 1
            try:
                with limits.limited(CALL_S):
                    return function(*arguments, **named)
            except (Exception, limits.LimitReached) as error:
                self._raised.append((answer, error))
                raise

        return guarded

    def count_kernels(self, plan: Plan) -> None:
        """Count the dispatches of kernels whose text is an answer."""
        for dispatch in plan.dispatches:
            path = Path(dispatch.kernel)
            if path.is_absolute() and path.is_file():
                key = self._kernels.get(path.read_text("utf-8"))
                self.calls.update([key] if key else [])

    def reason(self, error: BaseException) -> str:
        """Return what went wrong in one sentence, with the answer that raised it."""
        for answer, raised in reversed(self._raised):
            if error is raised or error.__cause__ is raised:
                how = "" if isinstance(raised, limits.LimitReached) else "raised "
                return f"{answer.name} {how}{words.error_text(raised) if how else raised}"
        if isinstance(error, AssertionError):
            return str(error)
        return f"what it returns cannot be used ({type(error).__name__}: {error})"


def _facts(plan: Plan) -> dict[str, Any]:
    """Return the counts of a plan; the arena has the values that move between chunks, too."""
    ends = {*(info.name for info in plan.graph.inputs), *plan.graph.outputs}
    facts = dict(swapped.facts_of(plan))
    for chunk in plan.chunks:
        moved = {
            (slot.arena, slot.offset_bytes): memory.round_up(slot.size_bytes)
            for name, slot in chunk.memory.slots.items()
            if slot.arena.startswith(MOVING) and name not in ends
        }
        facts["arena_bytes"] += sum(moved.values())
    return facts


def _chunks(plan: Plan) -> list[tuple[str, int, tuple[int, ...]]]:
    return [
        (
            plan.devices[chunk.device].name if chunk.is_on_device else "host",
            len(chunk.dispatches),
            chunk.predecessors,
        )
        for chunk in plan.chunks
    ]


def _memory(plan: Plan) -> str:
    """Draw the memory of the chunk with the most activations."""
    chunks = [chunk for chunk in plan.chunks if chunk.is_on_device]
    largest = max(chunks, key=lambda chunk: chunk.memory.arena_bytes, default=None)
    return str(largest.memory._repr_html_()) if largest else ""
