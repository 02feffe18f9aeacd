"""Registry of exercises by id: each is one class with its cases, its oracle and its comparison.

The decorator is the registration. Exercise "03-1" is in `checks/lab_03.py` of the labs' folder.
The same definition gives feedback in the notebook and marks in the grader.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import numpy as np

from vklab_course.definition import calls
from vklab_course.definition.case import Case
from vklab_course.definition.report import Report
from vklab_course.definition.verdict import Verdict
from vklab_course.piece import Piece
from vklab_course.places import VARIANTS, labs_folder

__all__ = [
    "LAB", "PLACE", "Exercise", "Function", "Value", "chosen_variants", "exercise", "exercises_of",
    "find", "home_of", "is_lab", "number_of",
]  # fmt: skip

LAB = r"\d\d[b-z]?"  # a lab's number; its second notebook, if it has one, is "04b"
PLACE = re.compile(r"\[\[([a-z]\w*)\]\]")  # the place of a parameter in a text
Kind = TypeVar("Kind", bound="type[Exercise]")


class Exercise:
    """One exercise in one variant.

    A definition overrides `cases`, `expected` and, where equality is not the question, `compare`.
    All three are pure functions of their arguments and of `params`.

    Attributes:
        id: lab and number, "03-1".
        takes: function, kernel, value, or text.
        parts: title and points by key; a case belongs to one part, or with key "" to all.
        hints: from a nudge to almost the line.
        variants: parameters of each variant; the first is the default.
        seams: dotted paths whose real functions raise while an answer is asked.
        needs: device features without which the exercise is skipped.
        builds: the piece of the runtime that a kept answer can replace; None if it builds none.
        seconds: time limit of the answers to one batch of cases.
        extra: whether the lab's minutes leave it out, and nothing later needs it.
        follows: for a part, the parts that it needs, as words: while one of these fails on a case
            of its own, this part only names it.
        basis: the part that every other one needs, if there is one and `follows` names none.
    """

    id: str = ""
    takes: ClassVar[str] = "function"
    parts: ClassVar[Mapping[str, tuple[str, float]]] = {}
    marked: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, str]] = {}
    basis: ClassVar[str] = "valid"
    hints: tuple[str, ...] = ()
    variants: tuple[Mapping[str, Any], ...] = ({},)
    seams: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    builds: ClassVar[Piece | None] = None
    seconds: float = 10.0
    extra: bool = False

    def __init__(self, variant: int = 0) -> None:
        self.variant = variant % len(self.variants)
        self.params: dict[str, Any] = dict(self.variants[self.variant])

    @cached_property
    def title(self) -> str:
        """Return the answer's name: `kernel_interface` for a class KernelInterface."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def points(self) -> float:
        """Return the points of all parts."""
        return sum(points for _, points in self.parts.values())

    def render(self, text: str) -> str:
        """Return a text with `[[name]]` replaced by the variant's parameter."""
        return PLACE.sub(lambda m: str(self.params.get(m[1], m[0])), text)

    # ------------------------------------------------------------- what a definition overrides

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        """Yield the cases of one draw."""
        raise NotImplementedError(f"exercise {self.id} has no cases here")

    def expected(self, case: Case) -> Any:
        """Return the right result for a case, or raise what an answer must raise."""
        raise NotImplementedError(f"exercise {self.id} has no oracle here")

    def compare(self, case: Case, got: Any, report: Report) -> None:
        """Compare a result with `case.expected`, for the part `report.part`.

        Args:
            case: the case with the oracle's result.
            got: what the answer returned.
            report: where differences are told.
        """
        report.equal(got, case.expected)

    def feedback(self, answer: Any, cases: Sequence[Case], verdict: Verdict) -> Verdict:
        """Return the verdict as a notebook shows it: explained. Grading shows it as it is.

        Args:
            answer: what was judged.
            cases: the cases that it was judged on.
            verdict: the verdict on it.
        """
        return verdict


class Function(Exercise):
    """An answer that is called."""

    def feedback(self, answer: Any, cases: Sequence[Case], verdict: Verdict) -> Verdict:
        """Return the verdict with the failing case of each part as a call for a cell.

        Args:
            answer: what was judged.
            cases: the cases that it was judged on.
            verdict: the verdict on it.
        """
        parts, shown = [], {-1}
        for part in verdict.parts:
            if part.case not in shown:
                shown.add(part.case)
                case = cases[part.case]
                call = calls.call_text(self.title, self.id, case, part.case + 1)
                part = replace(part, message=calls.shown(part.message, call, case))
            parts.append(part)
        return replace(verdict, parts=tuple(parts))


class Value(Exercise):
    """An answer that is a value: a number, a text, a choice, a table.

    Without inputs there is one case; `expected` returns the value.
    """

    takes = "value"

    def render(self, text: str) -> str:
        """Return a text with its parameters; `[[right]]` in a solution is the right answer.

        The parameters of a variant ship to students, so the right answer cannot be among them.
        """
        if "[[right]]" in text:
            text = text.replace("[[right]]", self.written(self.expected(Case())))
        return super().render(text)

    @staticmethod
    def written(right: Any) -> str:
        """Return a right answer as code; a text is code already."""
        return right if isinstance(right, str) else repr(right)

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        """Yield the one case."""
        yield Case(on="your answer")


# Keyed by module and id, because two folders of labs may use the same number.
_exercises: dict[tuple[str, str], type[Exercise]] = {}


def exercise(
    identifier: str,
    *,
    hints: Sequence[str],
    variants: Sequence[Mapping[str, Any]] = ({},),
    seams: Sequence[str] = (),
    needs: Sequence[str] = (),
    builds: Piece | None = None,
    seconds: float | None = None,
    extra: bool = False,
) -> Callable[[Kind], Kind]:
    """Register the decorated class as the definition of an exercise.

    Args:
        identifier: the exercise, "03-1".
        hints: at least one.
        variants: as in `Exercise`.
        seams: as in `Exercise`.
        needs: as in `Exercise`.
        builds: as in `Exercise`.
        seconds: as in `Exercise`; default: that of the kind.
        extra: as in `Exercise`.
    """
    if not re.fullmatch(LAB + r"-p?[1-9]\d?", identifier) or not hints or not variants:
        raise ValueError(
            f"exercise {identifier!r}: write an id such as 03-1, at least one hint "
            "and at least one variant"
        )

    def register(definition: Kind) -> Kind:
        definition.id, definition.hints = identifier, tuple(hints)
        definition.variants = tuple(dict(each) for each in variants)
        definition.seams, definition.needs = tuple(seams), tuple(needs)
        definition.builds, definition.extra = builds, extra
        if seconds is not None:
            definition.seconds = seconds
        _exercises[definition.__module__, identifier] = definition
        return definition

    return register


def number_of(identifier: str) -> str:
    """Return the lab of an exercise or of a file: "03" of "03-1", "04b" of "04b_shapes"; or ""."""
    found = re.match(LAB + "(?=[-_])", str(identifier))
    return found[0] if found else ""


def is_lab(text: str, name: str) -> bool:
    """Tell whether a text means the lab of this name: "4", "04" and "04_slug" mean "04_slug"."""
    return text == name or text.zfill(len(number_of(name))) == number_of(name)


def exercises_of(number: str, variants: Mapping[str, int] | None = None) -> dict[str, Exercise]:
    """Return the exercises of a lab by id, in order, without predictions.

    Args:
        number: the lab, "03".
        variants: the variant of each exercise; default: those of the labs' folder.
    """
    module = _load(number)
    chosen = chosen_variants() if variants is None else variants
    own = {
        key: kind(int(chosen.get(key, 0)))
        for (home, key), kind in _exercises.items()
        if home == module and kind.marked
    }
    places = {key: (number_of(key), int(key.partition("-")[2])) for key in own}
    return {key: own[key] for key in sorted(own, key=places.__getitem__)}


def home_of(identifier: str) -> str:
    """Return the lab that has an exercise: that of its number, or the one that it has moved to."""
    first = number_of(identifier)
    if (_load(first), identifier) in _exercises:
        return first
    named = re.compile(rf"""["']{re.escape(identifier)}["']""")
    for path in sorted((labs_folder() / "checks").glob("lab_*.py")):
        number = path.stem.removeprefix("lab_")
        if named.search(path.read_text("utf-8")) and (_load(number), identifier) in _exercises:
            return number
    return first


def chosen_variants() -> dict[str, int]:
    """Return the variant of each exercise in the labs' folder; a release writes variants.json."""
    path = labs_folder() / VARIANTS
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def find(identifier: str) -> Exercise:
    """Return an exercise by id. Raises LookupError with the ids that exist."""
    home = home_of(identifier)
    exercises = exercises_of(home)
    other = _exercises.get((_load(home), identifier))
    if other is not None and not other.marked:
        return other()
    if identifier not in exercises:
        meant = _meant(identifier)
        asked = f". Did you mean {meant!r}?" if meant else ""
        if not exercises:
            raise LookupError(f"there is no lab {home or identifier!r}{asked}")
        listed = ", ".join(exercises)
        raise LookupError(f"there is no exercise {identifier!r}; there is {listed}{asked}")
    return exercises[identifier]


def _meant(identifier: str) -> str:
    """Return the exercise that a typo means: "03-1" of "3-1", "03_1" and "Lab 3, 1"; or ""."""
    found = re.search(r"(\d{1,3})\s*([b-z]?)\D+?(\d{1,3})", identifier.lower())
    meant = f"{int(found[1]):02}{found[2]}-{int(found[3])}" if found else ""
    return meant if meant in exercises_of(number_of(meant)) else ""


def _load(number: str) -> str:
    """Import the definitions of a lab; return the module's name, or "" if there are none."""
    if not re.fullmatch(LAB, number):
        return ""
    path = labs_folder() / "checks" / f"lab_{number}.py"
    if not path.is_file():
        return ""
    name = f"vklab_checks_{zlib.crc32(bytes(path.resolve())):08x}_{number}"
    if name not in sys.modules:
        sys.modules[name] = module = ModuleType(name)
        module.__file__ = str(path)
        try:
            # Compiled afresh: bytecode on disk may be that of an edit within the same second.
            exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return name
