"""Kernels as answers: dispatch a student's shader on every case, and explain a failure in words.

A case's arguments are the arrays by name, the workgroups, the push constants and, if it has any,
the specialization constants of one dispatch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from vklab_course import seam, words
from vklab_course.children.kernel_child import GUARD_WORD
from vklab_course.children.run_kernel import Run
from vklab_course.counting import arrivals, observe, shapes
from vklab_course.counting.observe import Observed, observe_kernel
from vklab_course.definition.case import Case, Got
from vklab_course.definition.exercise import Exercise
from vklab_course.definition.report import Report
from vklab_course.definition.verdict import FOLLOWS, Verdict

__all__ = ["Kernel", "KernelAnswers", "is_glsl", "named", "runs_of"]

WORDS = {
    "compile_error": "the kernel does not compile:\n{}",
    "mismatch": "the kernel does not fit its dispatch: {}",
    "no_device": "no device can be used: {}",
    "refused": "the counters of the check cannot follow this kernel: {}",
}
FORMATS = {
    "I": "uint",
    "i": "int",
    "f": "float",
    "e": "half",
    "d": "double",
    "H": "uint16_t",
    "h": "int16_t",
    "B": "uint8_t",
    "b": "int8_t",
    "Q": "uint64_t",
    "q": "int64_t",
}
COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")
IMPORT = re.compile(r"^\s*(?:import\b|implementing\b|__include\b|#\s*include\b)", re.M)
BARRIER = re.compile(r"barrier", re.I)
POWER = re.compile(r"[\w)\]]\s*\*\*\s*[\w(]")  # Python's power
# For each element of an invocation: most turns of loops, in general and where an element needs one
# element of each input; there also most uses of shared arrays.
TURNS, OWN_TURNS, OWN_USES = 64, 8, 5


def is_glsl(text: str) -> bool:
    """Tell whether a kernel is GLSL: it has a #version line."""
    return bool(re.search(r"^\s*#version", text, re.M))


def named(text: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return buffers by their names in a kernel: in GLSL the block's name, in capitals."""
    return {name.upper() if is_glsl(text) else name: a for name, a in arrays.items()}


def runs_of(text: str, cases: Sequence[Case]) -> list[Run]:
    """Return the dispatch of each case, for this kernel."""
    return [Run(named(text, arrays), *rest) for arrays, *rest in (case.args for case in cases)]


class KernelAnswers:
    """A kernel, given as text; it runs in a child process that holds the device.

    Args:
        text: the kernel, in GLSL or Slang.
        seconds: time limit of each dispatch.
        variables: environment variables of the child, such as `counting.observe.PINNED`.
    """

    def __init__(
        self, text: str, seconds: float = 15.0, variables: Mapping[str, str] | None = None
    ) -> None:
        self.text, self.seconds, self.variables = text, seconds, variables

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return one dispatch for each case; a kernel prints nothing.

        A kernel that builds a piece of the runtime must not import the runtime's own modules.
        """
        if exercise.builds and IMPORT.search(COMMENT.sub("", self.text)):
            return [Got("refused", message=seam.REFUSAL)] * len(cases), ""
        runs = runs_of(self.text, cases)
        done = observe_kernel(self.text, runs, seconds=self.seconds, variables=self.variables)
        return [
            _got(result, self.text, number, len(done)) for number, result in enumerate(done, 1)
        ], ""


def _got(result: Observed, text: str, number: int, count: int) -> Got:
    if result.status == "ran":
        return Got("returned", result)
    if result.status == "not_attempted":
        return Got("not_attempted", message=result.message)
    said = WORDS.get(result.status, "{}").format(result.message)
    said = said.replace("kernel kernel has", "it has")
    if result.status == "compile_error" and not is_glsl(text) and "gl_GlobalInvo" in text:
        said = "this looks like GLSL, whose first line is `#version 450`; read as Slang, " + said
    if result.status == "compile_error" and POWER.search(COMMENT.sub("", text)):
        said = "`**` is Python; write x * x, or pow(x, 2). " + said
    # The host packs a constant by the type that the kernel's struct gives it.
    said = re.sub(
        r"kernel kernel: push constants .*?'(\w+)': (\d+\.\d*|nan|inf).* do not fit: .*",
        r"\1 is an integer in your struct, the host pushes \2",
        said,
    )
    which = f"dispatch {number} of {count}: " if number > 1 else ""
    return Got("refused", message=which + said)


class Kernel(Exercise):
    """A kernel, judged by its values, its accesses, and the share of work of each invocation.

    A definition yields cases by `dispatch_case`; `expected` returns the output array.

    Attributes:
        output: the buffer that is compared, by the array's name.
        dtype: its type.
        start: value of each of its elements before the dispatch.
        atol: difference that is allowed to a result near 0.
        pushed: type and first byte of each push constant, for a part "types".
        each: most elements that one invocation writes.
        is_mapped: whether `owner` says which invocation writes an element, and an element needs
            one element of each input; else any invocation may, and it may read more.
        in_a_row: whether the elements of an invocation lie one after the other.
        loads_of_element: most reads of an input by an invocation for each element of its own.
        uses_of_element: most accesses to shared arrays for each of these elements; None for any
            number. A kernel that is mapped has `OWN_USES`.
        size: invocations of a workgroup; None for any number.
    """

    takes = "kernel"
    basis = "inside"
    seconds = 60.0
    output: ClassVar[str] = "y"
    dtype: ClassVar[type] = np.float32
    start: ClassVar[float] = -1.0
    atol: ClassVar[float] = 1e-5
    pushed: ClassVar[Mapping[str, tuple[str, int]]] = {}
    is_mapped: ClassVar[bool] = True
    in_a_row: ClassVar[bool] = False
    loads_of_element: ClassVar[int] = 4
    uses_of_element: ClassVar[int | None] = None
    size: ClassVar[int | None] = None
    guard: ClassVar[str] = "is there a guard, and is the index right?"

    @property
    def each(self) -> int:
        """Return the number of elements that one invocation writes at most."""
        return int(self.params.get("each", 1))

    def owner(self, case: Case, elements: np.ndarray) -> np.ndarray:
        """Return the invocation, by its linear number, that each element belongs to."""
        return elements // self.each

    def matrix(self, case: Case) -> tuple[int, ...]:
        """Return rows and columns of the output, by which messages name its elements."""
        return (-1,)

    def name_in(self, got: Observed, name: str) -> str:
        """Return the name of an array's buffer in the kernel: in GLSL, that of its block."""
        return name if name in got.run.buffers else name.upper()

    def dispatch_case(
        self, arrays: Mapping[str, np.ndarray], size: int, groups: Sequence[int],
        push: Mapping[str, Any], on: str, room: int = 0,
        constants: Mapping[str, int | float] | None = None,
    ) -> Case:  # fmt: skip
        """Return the case of one dispatch.

        Args:
            arrays: the inputs by name.
            size: number of elements of the output.
            groups: workgroups along each axis.
            push: push constants by name.
            on: the case in words.
            room: elements that each array has behind its last one: a kernel knows the size from
                its push constants, not from an array's length.
            constants: specialization constants by name; None for a kernel without any.
        """
        longer = {
            name: np.concatenate([array, np.ones(room, array.dtype)])
            for name, array in arrays.items()
        }
        longer[self.output] = np.full(size + room, self.start, self.dtype)
        if room:
            on += f" (behind its end each array has {room} elements that must not be used)"
        special = () if constants is None else (dict(constants),)
        return Case(args=(longer, tuple(groups), dict(push), *special), on=on, facts={"room": room})

    def compare(self, case: Case, got: Observed, report: Report) -> None:
        """Compare one aspect of a dispatch, named by the part.

        Args:
            case: the case with the oracle's result.
            got: what the answer returned.
            report: where differences are told.
        """
        if got.unused:
            report.note(f"{words.never_used(got.unused)} by the kernel; the dispatch supplies it")
        getattr(self, f"_{report.part}")(case, got, report)

    def feedback(self, answer: Any, cases: Sequence[Case], verdict: Verdict) -> Verdict:
        """Return a verdict that names those who do not arrive at a barrier, before all else.

        Args:
            answer: the kernel.
            cases: the cases that it was judged on.
            verdict: the verdict on it.
        """
        if verdict.status != "incorrect" or not BARRIER.search(COMMENT.sub("", answer)):
            return verdict
        runs = runs_of(answer, cases)
        number, said = arrivals.absent(answer, runs, seconds=15.0, variables=observe.PINNED)
        if not said:
            return verdict
        said = f"on {cases[number].on}: {said}"
        first, parts = "", []
        for part in verdict.parts:
            if not part.passed:
                also = "" if shapes.ALL_ARRIVE in part.message else f"\n{part.message}"
                told = FOLLOWS.format(first) if first else said + also
                part, first = replace(part, message=told), first or part.name
            parts.append(part)
        messages = verdict.messages if parts else (*verdict.messages, said)
        return replace(verdict, parts=tuple(parts), messages=messages)

    def _values(self, case: Case, got: Observed, report: Report) -> None:
        values = got.buffers[self.name_in(got, self.output)]
        shape, size = self.matrix(case), values.size - case.facts["room"]
        unset = (values[:size] == self.start) & (case.expected[:size] != self.start)
        said = f"{self.start:g} means: nobody wrote it. " if unset.any() else ""
        bits = values.view(np.uint32).astype(np.int64) - GUARD_WORD
        if ((bits >= 0) & (bits < len(got.buffers))).any():
            said += "1.2333 is a guard word, which lies outside of every buffer: who read it?"
        report.close(
            values[:size].reshape(shape),
            case.expected[:size].reshape(shape),
            1e-5,
            self.atol,
            said.strip(),
        )

    def _inside(self, case: Case, got: Observed, report: Report) -> None:
        for name, at in got.out_of_bounds.items():
            where = "behind its end, at byte " if at[-1] > 0 else "before its start, at byte "
            where += ", ".join(map(str, at[:3])) + (", ..." if len(at) > 3 else "")
            element = at[0] // got.run.buffers[name].itemsize
            report.expect(
                False,
                f"{name} was written {where}; bytes count from its start, so byte "
                f"{at[0]} belongs to element {element}; {self.guard}",
            )
        said = shapes.outside_shape(got) or shapes.room_shape(got, case.facts["room"])
        report.expect(not said, said)

    def _shape(self, case: Case, got: Observed, report: Report) -> None:
        report.expect(not shapes.outside_shape(got), "it touches elements outside of a buffer")
        output, loads = self.name_in(got, self.output), self.each * self.loads_of_element
        there_are = got.run.buffers[output].size > case.facts["room"]
        uses, turns = (OWN_USES, OWN_TURNS) if self.is_mapped else (self.uses_of_element, TURNS)
        for said in (
            self.size and shapes.size_shape(got, size=self.size),
            there_are and shapes.work_shape(got, output, elements_per_invocation=self.each),
            self.is_mapped
            and shapes.partial_shape(
                got, output, owner=lambda elements: self.owner(case, elements)
            ),
            shapes.order_matters(got, [output]),
            shapes.barrier_shape(got),
            shapes.race_shape(got),
            shapes.input_shape(got, output),
            self.in_a_row and shapes.row_shape(got, output, most=self.each),
            *(
                shapes.load_shape(
                    got, name, most=loads, most_elements=self.each if self.is_mapped else loads
                )
                for name in got.counts.reads
            ),
            uses and shapes.shared_shape(got, most=uses * self.each),
            shapes.turn_shape(got, most=turns * self.each),
        ):
            report.expect(not said, str(said))

    def _types(self, case: Case, got: Observed, report: Report) -> None:
        for name, (kind, first) in self.pushed.items():
            letter = got.push_formats.get(name, "")
            report.expect(letter, f"{name} is never used, so the compiler has dropped it")
            given = FORMATS.get(letter, letter)
            article = "an" if given.startswith("int") else "a"
            signs = {given, kind} == {"int", "uint"}
            when = "from 2**31 on" if signs else "then"
            report.expect(
                given == kind,
                f"{name} is {article} {given} in your struct; the host "
                f"pushes a {kind}, whose bytes say something else {when}",
            )
            at = got.push_offsets[name]
            report.expect(
                at == first,
                f"{name} begins at byte {at} of your struct; the host pushes it at byte {first}",
            )
