"""Kernels as answers: dispatch a student's shader on every case, and explain a failure in words.

A case's arguments are the arrays by name, the workgroups and the push constants of one dispatch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from vklab.course import words
from vklab.course.children.run_kernel import Run
from vklab.course.counting import shapes
from vklab.course.counting.observe import Observed, observe_kernel
from vklab.course.definition.case import Case, Got
from vklab.course.definition.exercise import Exercise
from vklab.course.definition.report import Report

__all__ = ["Kernel", "KernelAnswers", "is_glsl", "named"]

WORDS = {
    "compile_error": "the kernel does not compile:\n{}",
    "mismatch": "the kernel does not fit its dispatch: {}",
    "no_device": "no device can be used: {}",
    "refused": "the counters of the check cannot follow this kernel: {}",
}
FORMATS = {"I": "uint", "i": "int", "f": "float", "e": "half", "d": "double"}


def is_glsl(text: str) -> bool:
    """Tell whether a kernel is GLSL: it has a #version line."""
    return bool(re.search(r"^\s*#version", text, re.M))


def named(text: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return buffers by their names in a kernel: in GLSL the block's name, in capitals."""
    return {name.upper() if is_glsl(text) else name: a for name, a in arrays.items()}


class KernelAnswers:
    """A kernel, given as text; it runs in a child process that holds the device.

    Args:
        text: the kernel, in GLSL or Slang.
        seconds: time limit of each dispatch.
        variables: environment variables of the child, such as `counting.observe.PINNED`.
    """

    def __init__(
        self, text: str, seconds: float = 4.0, variables: Mapping[str, str] | None = None
    ) -> None:
        self.text, self.seconds, self.variables = text, seconds, variables

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return one dispatch for each case; a kernel prints nothing."""
        runs = [Run(named(self.text, arrays), groups, push) for arrays, groups, push in (
            case.args for case in cases)]  # fmt: skip
        done = observe_kernel(self.text, runs, seconds=self.seconds, variables=self.variables)
        return [_got(result, number, len(done)) for number, result in enumerate(done, 1)], ""


def _got(result: Observed, number: int, count: int) -> Got:
    if result.status == "ran":
        return Got("returned", result)
    if result.status == "not_attempted":
        return Got("not_attempted", message=result.message)
    which = f"dispatch {number} of {count}: " if number > 1 else ""
    return Got("refused", message=which + WORDS.get(result.status, "{}").format(result.message))


class Kernel(Exercise):
    """A kernel, judged by its values, its accesses, and the share of work of each invocation.

    A definition yields cases by `dispatch_case`; `expected` returns the output array.

    Attributes:
        output: the buffer that is compared, by the array's name.
        start: value of each of its elements before the dispatch.
        types: the types allowed for each push constant, for a part "types".
        each: most elements that one invocation writes.
    """

    takes = "kernel"
    seconds = 60.0
    output: ClassVar[str] = "y"
    start: ClassVar[float] = -1.0
    types: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    guard: ClassVar[str] = "is there a guard, and is the index right?"

    @property
    def each(self) -> int:
        """Return the number of elements that one invocation writes at most."""
        return int(self.params.get("each", 1))

    def owner(self, case: Case, elements: np.ndarray) -> np.ndarray:
        """Return the invocation, by its linear number, that each element belongs to."""
        return elements // self.each

    def dispatch_case(
        self, arrays: Mapping[str, np.ndarray], size: int, groups: Sequence[int],
        push: Mapping[str, Any], on: str,
    ) -> Case:  # fmt: skip
        """Return the case of one dispatch.

        Args:
            arrays: the inputs by name.
            size: number of elements of the output.
            groups: workgroups along each axis.
            push: push constants by name.
            on: the case in words.
        """
        output = np.full(size, self.start, np.float32)
        return Case(args=({**arrays, self.output: output}, tuple(groups), dict(push)), on=on)

    def compare(self, case: Case, got: Observed, report: Report) -> None:
        """Compare one aspect of a dispatch, named by the part."""
        if got.unused:
            report.note(f"{words.never_used(got.unused)} by the kernel; the dispatch supplies it")
        getattr(self, f"_{report.part}")(case, got, report)

    def _values(self, case: Case, got: Observed, report: Report) -> None:
        values = got.buffers.get(self.output, got.buffers.get(self.output.upper()))
        assert values is not None
        never = f"{self.start:g} means: nobody wrote it" if (values == self.start).any() else ""
        report.close(values, case.expected, 1e-5, 1e-5, never)

    def _inside(self, case: Case, got: Observed, report: Report) -> None:
        for name, at in got.out_of_bounds.items():
            where = "behind its end, at byte " if at[-1] > 0 else "before its start, at byte "
            where += ", ".join(map(str, at[:3])) + (", ..." if len(at) > 3 else "")
            report.expect(False, f"{name} was written {where}; {self.guard}")
        said = shapes.outside_shape(got)
        report.expect(not said, said)

    def _shape(self, case: Case, got: Observed, report: Report) -> None:
        output = self.output if self.output in got.run.buffers else self.output.upper()
        for said in (
            shapes.work_shape(got, output, elements_per_invocation=self.each),
            shapes.partial_shape(got, output, owner=lambda elements: self.owner(case, elements)),
            shapes.order_matters(got, [output]),
        ):
            report.expect(not said, said)

    def _types(self, case: Case, got: Observed, report: Report) -> None:
        for name, allowed in self.types.items():
            letter = got.push_formats.get(name, "")
            report.expect(letter, f"{name} is never used, so the compiler has dropped it")
            given = FORMATS.get(letter, letter)
            report.expect(given in allowed, f"{name} is a {given} in your struct; the host pushes "
                          f"a {allowed[0]}, whose bytes say something else then")  # fmt: skip
