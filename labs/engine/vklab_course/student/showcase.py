"""Showcase: models run with all kept answers inside the runtime, and a page tells what came of it.

Each piece is tried alone first; one that fails is named and replaced by the runtime's own. Nothing
on the page depends on a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from markupsafe import Markup
from onnx import TensorProto, helper

from vklab.base import draw
from vklab.errors import VklabError
from vklab_course import words
from vklab_course.data import data
from vklab_course.definition.exercise import Exercise
from vklab_course.page import page
from vklab_course.picture import picture
from vklab_course.student import kept, trying
from vklab_course.student.kept import Judge, Kept, KeptError
from vklab_course.student.trying import Ran, Target
from vklab_labs.lab_13.second_device import second_device
from vklab_labs.shared import swapped
from vklab_labs.shared.lanes import draw_timeline

__all__ = ["Function", "Shown", "Showcase", "html", "showcase", "targets"]

BRANCHES, DIGITS = "inception_v1", "digits_cnn.onnx"
CAP_BYTES = 60_000  # of the first device, so that the digits need two
COUNTS = {"dispatches": "dispatches", "barriers": "barriers", "arena_bytes": "arena",
          "chunks": "chunks", "transfers": "transfers"}  # fmt: skip
COLOURS = ("blue", "orange", "green", "pink")


@dataclass(frozen=True)
class Function:
    """An exercise that builds a piece, and what stands in the runtime.

    Attributes:
        id: the exercise.
        title: the answer's name.
        builds: the name of the piece.
        mine: whether the student's answer stands there.
        said: how often it was called, or why it does not stand there.
    """

    id: str
    title: str
    builds: str
    mine: bool
    said: str


@dataclass(frozen=True)
class Shown:
    """A target in three columns: naive, with the student's functions, and vklab's own.

    Attributes:
        target: the model.
        naive: without sharing, fusion and grouping.
        mine: with the answers that passed their trial.
        own: vklab's own.
    """

    target: Target
    naive: Ran
    mine: Ran
    own: Ran

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the counts of the three columns as text."""
        columns = [ran.facts for ran in (self.naive, self.mine, self.own)]
        rows = []
        for name, word in COUNTS.items():
            naive, mine, own = (_count(name, facts.get(name)) for facts in columns)
            if any(name in facts for facts in columns):
                rows.append((word, naive, mine, own))
        return rows

    @property
    def same(self) -> bool | None:
        """Tell whether the student's outputs are vklab's; None if nothing ran."""
        if self.mine.outputs is None or self.own.outputs is None:
            return None
        return swapped.same_outputs(self.mine.outputs, self.own.outputs)


@dataclass(frozen=True)
class Showcase:
    """All functions, and all targets that could be shown; `notes` names those that could not."""

    functions: tuple[Function, ...]
    shown: tuple[Shown, ...]
    notes: tuple[str, ...] = ()


def _count(name: str, value: Any) -> str:
    if value is None:
        return "–"
    return draw.bytes_text(value) if name == "arena_bytes" else str(value)


def targets(model: Path | None = None) -> list[Target]:
    """Return what is shown: a model of the student, or the course's own.

    Raises VklabError if there is no such file.
    """
    spread = {"devices": [0, 1], "memory_caps": {0: CAP_BYTES}}
    drivers = second_device()
    if model is not None:
        if not model.is_file():
            beside = [path.name for path in model.absolute().parent.glob("*.onnx")]
            raise VklabError(f"there is no file {model}.{words.near(model.name, beside)}")
        return [Target(model.name, str(model))]
    made = [
        Target("digits", str(data(DIGITS))),
        Target("four operators", _four_operators().SerializeToString()),
        Target("Inception v1, planned", BRANCHES, planned=True),
    ]
    if drivers is not None:
        for policy, rule in (("greedy", "first fit"), ("cost", "by cost")):
            name, load = f"digits on two devices, {rule}", {**spread, "policy": policy}
            made.append(Target(name, str(data(DIGITS)), False, load, drivers))
    return made


def _four_operators() -> onnx.ModelProto:
    """Return a model of the four operators for which students write kernels."""
    floats = TensorProto.FLOAT
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["product"], transB=1),
        helper.make_node("Transpose", ["product"], ["turned"], perm=[1, 0]),
        helper.make_node("Add", ["turned", "z"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=-1),
    ]
    inputs = {"x": [37, 65], "w": [53, 65], "z": [53, 37]}
    graph = helper.make_graph(
        nodes,
        "four operators",
        [helper.make_tensor_value_info(name, floats, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", floats, [53, 37])],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


# -------------------------------------------------------------------------------------- the trials


def showcase(
    work: Path, judge: Judge, model: Path | None = None, tell: Callable[[str], None] = print
) -> Showcase:
    """Try every kept answer alone, then run the targets with all that are good.

    Args:
        work: folder of the student's copies.
        judge: judges the text of an answer that has changed.
        model: an ONNX file; None for the course's own models.
        tell: called with a line on each step.
    """
    builders = trying.builders()
    answers, said = _answers(work, judge, builders)
    listed = targets(model)
    notes = [] if len(listed) > 3 or model else ["one device only: nothing runs on two here"]
    own = {target.name: trying.run(target) for target in listed}
    for target in [target for target in listed if own[target.name].reason]:
        notes.append(f"{target.name} does not run here: {own[target.name].reason}")
        listed.remove(target)
    calls: dict[str, dict[str, int]] = {}
    good: list[Kept] = []
    for group in answers:
        tell(f"trying {' and '.join(answer.id for answer in group)}")
        needed = _devices(group[0], builders)
        wide = [target for target in listed if target.devices >= needed]
        fault = _fault(group, wide, own, calls) if wide else "it needs two devices"
        if fault:
            said |= {answer.id: fault for answer in group}
        else:
            good += group
    shown = []
    for target in listed:
        tell(f"running {target.name}")
        usable = [a for a in good if _devices(a, builders) <= target.devices]
        mine = trying.run(target, usable) if usable else own[target.name]
        if mine.reason:
            notes.append(f"{target.name} with all functions together: {mine.reason}")
            mine = own[target.name]
        for identifier, count in mine.calls.items():
            calls.setdefault(identifier, {})[target.name] = count
        shown.append(Shown(target, trying.run(target, naive=True), mine, own[target.name]))
    passed = {answer.id for answer in good}
    return Showcase(
        tuple(_function(each, passed, said, calls) for each in builders), tuple(shown), tuple(notes)
    )


def _answers(
    work: Path, judge: Judge, builders: Iterable[Exercise]
) -> tuple[list[list[Kept]], dict[str, str]]:
    """Return the answers to try, piece by piece, and what there is to say on all others.

    Of several pieces that exclude each other, the last in the course is tried.
    """
    found: dict[tuple[str, str], dict[str, list[Kept]]] = {}
    said: dict[str, str] = {}
    for exercise in builders:
        piece = trying.piece_of(exercise)
        try:
            answer = kept.current(work, exercise, judge)
        except KeptError as error:
            said[exercise.id] = str(error)
            continue
        if piece.outside:
            said[exercise.id] = piece.outside
            continue
        same_work = found.setdefault((piece.name, piece.seam), {})
        same_work.setdefault(" ".join(piece.own), []).append(answer)
    for pieces in found.values():
        *others, (last, _) = pieces.items()
        for _, some in others:
            said |= {answer.id: f"{last} builds the same piece" for answer in some}
    return [list(pieces.values())[-1] for pieces in found.values()], said


def _fault(
    group: Sequence[Kept], listed: Sequence[Target], own: Mapping[str, Ran],
    calls: dict[str, dict[str, int]],
) -> str:  # fmt: skip
    """Try the answers of one piece alone; return why they cannot be used, or "".

    Args:
        group: the answers.
        listed: the targets that run.
        own: vklab's own run of each.
        calls: filled with the calls of each answer in each target.
    """
    for target in listed:
        ran = trying.run(target, group)
        if ran.reason:
            return ran.reason
        outputs, expected = ran.outputs, own[target.name].outputs
        if outputs and expected and not swapped.same_outputs(outputs, expected):
            return f"with it the outputs of {target.name} differ from vklab's"
        for identifier, count in ran.calls.items():
            calls.setdefault(identifier, {})[target.name] = count
        if all(sum(calls.get(answer.id, {}).values()) for answer in group):
            return ""
    return "none of the models calls it"


def _devices(answer: Kept, builders: Iterable[Exercise]) -> int:
    return next(trying.piece_of(e).devices for e in builders if e.id == answer.id)


def _function(
    exercise: Exercise, passed: set[str], said: Mapping[str, str],
    calls: Mapping[str, Mapping[str, int]],
) -> Function:  # fmt: skip
    mine = exercise.id in passed
    counts = calls.get(exercise.id, {})
    listed = ", ".join(f"{count} in {name}" for name, count in counts.items() if count)
    text = f"called: {listed}" if mine else said.get(exercise.id, "no answer is kept")
    builds = trying.piece_of(exercise).name
    return Function(exercise.id, exercise.title, builds, mine, text)


# ---------------------------------------------------------------------------------------- the page


def html(done: Showcase) -> str:
    """Return the page."""
    pictures = {each.target.name: _pictures(each) for each in done.shown}
    return page("showcase.html.j2", showcase=done, pictures=pictures)


def _pictures(shown: Shown) -> list[Markup]:
    made = []
    for whose, ran in (("naive", shown.naive), ("with my functions", shown.mine)):
        if ran.memory:
            size = draw.bytes_text(ran.facts["arena_bytes"])
            alt = f"Lifetimes of {shown.target.name} in their arena, {whose}: {size}."
            caption = f"The arena, {whose}: {size}. A box is a value: its width the lifetime, "
            made.append(picture(ran.memory, alt, caption + "its height the bytes."))
    if shown.target.devices > 1 and shown.mine.chunks:
        made.append(_schedule(shown.mine.chunks, shown.target.name))
    return [Markup(each._repr_html_()) for each in made]


def _schedule(chunks: Sequence[tuple[str, int, tuple[int, ...]]], name: str) -> Any:
    """Draw which device runs which chunk, in the order in which they can run."""
    starts: list[int] = []
    lanes: dict[str, list[tuple[str, float, float, str]]] = {}
    arrows = []
    free: dict[str, int] = {}
    for number, (device, dispatches, before) in enumerate(chunks):
        ready = max((starts[other] + chunks[other][1] for other in before), default=0)
        start = max(ready, free.get(device, 0))
        starts.append(start)
        free[device] = start + max(dispatches, 1)
        colour = COLOURS[number % len(COLOURS)]
        lanes.setdefault(device, []).append(
            (f"chunk {number}", start, start + max(dispatches, 1), colour)
        )
        arrows += [
            (chunks[other][0], starts[other] + chunks[other][1], device, start)
            for other in before
            if chunks[other][0] != device
        ]
    counts = "; ".join(f"chunk {n}: {d[1]} dispatches on {d[0]}" for n, d in enumerate(chunks))
    caption = "The schedule with my functions: a box is a chunk, as wide as its dispatches."
    return draw_timeline(lanes, arrows, alt=f"{name}: {counts}.", caption=caption)
