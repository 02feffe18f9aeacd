"""Visible checks of lab 04: the two interfaces of its steps, the grid, and four kernels.

A kernel is dispatched with guard words around its buffers, and then traced: changed guard words
show writes just outside a buffer, the trace shows accesses at any distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vklab.course import Run, words
from vklab.course.children.kernel_check import dispatch
from vklab.course.children.run_kernel import Dispatched
from vklab.course.definition.exercise import exercise
from vklab.course.definition.report import Report
from vklab.course.figures.trace import READ, WRITE, Arrays, is_glsl, named, trace_runs
from vklab.errors import ShaderError

__all__ = [
    "check_halves", "check_kernel_interface", "check_push_and_workgroups", "check_scaled_sum",
    "check_squared_relu", "check_transpose", "check_workgroups",
]  # fmt: skip

GRID = "vklab.ops.registry.grid"
START = -1.0  # every output element before the dispatch
NEVER = f"{START:g} means: nobody wrote it"
GUARD = "is there a guard, and is the index right?"
KERNEL: dict[str, Any] = {"points": 4, "takes": "kernel", "seconds": 60}
# Vulkan's enum values, so that a check needs no driver.
STORAGE_BUFFER, COMPUTE_BIT = 7, 0x20
TYPES = {"I": "uint", "i": "int", "f": "float", "e": "half", "d": "double"}


def _grid(report: Report, got: Any, expected: tuple[int, int, int]) -> None:
    """Expect this grid as ints: a dispatch takes no other type."""
    whole = isinstance(got, tuple | list) and all(isinstance(n, int | np.integer) for n in got)
    hint = "" if whole or got is None else "three ints in a tuple, please; np.ceil makes floats"
    report.equal(got, expected, hint)
    report.expect(whole, f"got {words.short(got)}: {hint}")


def _pair(report: Report, got: Any, wanted: str) -> tuple[Any, Any]:
    given = "None (is a return missing?)" if got is None else words.short(got)
    report.expect(isinstance(got, tuple | list) and len(got) == 2,
                  f"expected {wanted}, got {given}")  # fmt: skip
    return tuple(got)


def _field(report: Report, thing: Any, name: str, kind: str) -> int:
    try:
        return int(getattr(thing, name))
    except (AttributeError, TypeError, ValueError):
        report.expect(False, f"expected a {kind}, got {words.short(thing)}")
        raise


@exercise(
    "04-1",
    points=3,
    hints=(
        "Look at the three `layout(set = 0, binding = ...)` lines of vector_add.comp, and at "
        "its push_constant line.",
        "One slot for each binding number that the kernel names; each is one storage buffer.",
        "The struct holds one uint. A uint has 32 bits; the size is in bytes.",
    ),
)
def check_kernel_interface(answer: Any, report: Report) -> None:
    """Compare slots and range with the interface of vector_add; the order of slots is free."""
    slot_kind, on = "VkDescriptorSetLayoutBinding", "vector_add"
    pair = "two things, (slots, push_range)"

    def slots_of() -> list[Any]:
        slots, _ = _pair(report, report.call(answer, on=on), pair)
        report.expect(isinstance(slots, list | tuple), f"slots: expected a list of {slot_kind}, "
                      f"got {words.short(slots)}")  # fmt: skip
        return list(slots)

    with report.part("one slot for each buffer, by its binding number", 1):
        numbers = sorted(_field(report, slot, "binding", slot_kind) for slot in slots_of())
        report.expect(len(set(numbers)) == len(numbers), f"two slots have one number: {numbers}")
        report.equal(numbers, [0, 1, 2], "a slot for each binding that the kernel names")
    with report.part("each slot is one storage buffer that the compute stage sees", 1):
        slots = slots_of()
        report.expect(slots, "there is no slot")
        for slot in slots:
            report.on(f"binding {_field(report, slot, 'binding', slot_kind)}")
            report.equal(_field(report, slot, "descriptorType", slot_kind), STORAGE_BUFFER,
                         "descriptorType: which constant is it?")  # fmt: skip
            report.equal(_field(report, slot, "descriptorCount", slot_kind), 1, "descriptorCount")
            stages = _field(report, slot, "stageFlags", slot_kind)
            report.expect(stages & COMPUTE_BIT, "stageFlags lacks the compute stage")
    with report.part("the range covers the struct, and no more", 1):
        _, pushed = _pair(report, report.call(answer, on=on), pair)
        report.on("the push-constant range")
        for name, value, hint in (("offset", 0, "the struct starts at the first byte"),
                                  ("size", 4, "one uint, in bytes")):  # fmt: skip
            report.equal(_field(report, pushed, name, "VkPushConstantRange"), value,
                         f"{name}: {hint}")  # fmt: skip
        stages = _field(report, pushed, "stageFlags", "VkPushConstantRange")
        report.expect(stages & COMPUTE_BIT, "stageFlags lacks the compute stage")


@exercise(
    "04-2",
    points=2,
    hints=(
        "How many workgroups of 64 cover 64 elements, how many 65?",
        "Division that rounds up: add one less than the divisor first, or use -(-a // b).",
        "The bytes are struct.pack of the count; the workgroups are a tuple that ends in 1, 1.",
    ),
)
def check_push_and_workgroups(answer: Any, report: Report) -> None:
    """Compare with a table of counts, at and around the borders of a workgroup."""
    pair, counts = "two things, (pushed bytes, workgroups)", (1000, 1024, 1025, 64, 1, 70_000)
    with report.part("the pushed bytes are the count, as a uint", 1):
        for count in counts:
            pushed, _ = _pair(report, report.call(answer, count), pair)
            report.expect(isinstance(pushed, bytes | bytearray),
                          f"expected bytes, got {words.short(pushed)}")  # fmt: skip
            report.equal(list(pushed), list(count.to_bytes(4, "little")), "the bytes, one by one")
    with report.part("enough workgroups of 64, and not one too many", 1):
        for count in counts:
            _, groups = _pair(report, report.call(answer, count), pair)
            _grid(report, groups, ((count + 63) // 64, 1, 1))


@exercise(
    "04-3",
    points=4,
    hints=(
        "How many workgroups of 64 cover 65 elements? And 64? And none?",
        "Division that rounds up is -(-a // b) in Python: // rounds down, so negate twice.",
        "Above LIMIT workgroups, x is ROW and y is the number of rows: workgroups / ROW, rounded "
        "up. The last row may be only partly needed; the kernel's guard takes care of it.",
    ),
    seams=(GRID,),
)
def check_workgroups(answer: Any, report: Report) -> None:
    """Compare with a table of counts, at and around every border."""
    with report.part("one row: enough workgroups, and not one too many", 2):
        for count, size, x in ((1000, 64, 16), (1024, 64, 16), (1025, 64, 17), (1, 64, 1),
                               (0, 64, 0), (1000, 256, 4), (7, 1, 7)):  # fmt: skip
            _grid(report, report.call(answer, count, size), (x, 1, 1))
    with report.part("above 65535 workgroups the grid continues along y", 2):
        for groups, expected in ((65535, (65535, 1, 1)), (65536, (32768, 2, 1)),
                                 (65537, (32768, 3, 1)), (98304, (32768, 3, 1)),
                                 (1_000_000, (32768, 31, 1))):  # fmt: skip
            on = f"count={groups * 64} (that is {groups} workgroups of 64)"
            _grid(report, report.call(answer, groups * 64, 64, on=on), expected)


Case = tuple[Arrays, tuple[int, ...], Mapping[str, Any], np.ndarray]


def _check_kernel(
    text: str,
    report: Report,
    cases: Mapping[str, Case],
    values: str,
    types: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Dispatch every case; grade the values of y, and the accesses outside of buffers.

    Args:
        text: the kernel.
        report: the report that gets the parts.
        cases: arrays, workgroups, push constants and expected y, by title.
        values: title of the part on the values of y.
        types: the types allowed for each push constant, graded in a part of their own.
    """
    plain = [Run(arrays, groups, push) for arrays, groups, push, _ in cases.values()]
    runs = [Run(named(text, run.buffers), run.workgroups, run.push) for run in plain]
    done = dict(zip(cases, dispatch(report, text, runs, seconds=4), strict=True))
    if unused := next(iter(done.values())).unused:
        report.note(f"{words.never_used(unused)} by the kernel; the dispatch supplies it")
    if types:
        with report.part("the struct has the types that the host pushes", 1):
            _types(report, next(iter(done.values())), types)
    with report.part(values, 2):
        for case, result in done.items():
            report.on(case)
            got = result.buffers["Y" if is_glsl(text) else "y"]
            report.close(got, cases[case][3], 1e-5, 1e-5, NEVER if (got == START).any() else "")
    with report.part("only elements that exist are read and written", 1 if types else 2):
        for case, result in done.items():
            report.on(case)
            _guards(report, result)
        try:
            traces = trace_runs(text, plain)
        except ShaderError:
            traces = []
            report.note("the tracer cannot follow this kernel: its guard words alone were compared")
        for case, traced in zip(cases, traces, strict=False):
            report.on(case)
            for name, length in traced.lengths.items():
                for kind, verb in ((WRITE, "written"), (READ, "read")):
                    for element in traced.outside(name, kind)[:1]:
                        report.expect(False, f"element {element} of {name} was {verb}, which has "
                                      f"{length} elements; {GUARD}")  # fmt: skip


def _types(report: Report, result: Dispatched, types: Mapping[str, tuple[str, ...]]) -> None:
    for name, allowed in types.items():
        letter = result.push_formats.get(name, "")
        report.expect(letter, f"{name} is never used, so the compiler has dropped it")
        given = TYPES.get(letter, letter)
        report.expect(given in allowed, f"{name} is a {given} in your struct; the host pushes a "
                      f"{allowed[0]}, whose bytes say something else then")  # fmt: skip


def _guards(report: Report, result: Dispatched) -> None:
    for name, at in result.out_of_bounds.items():
        where = "behind its end, at byte " if at[-1] > 0 else "before its start, at byte "
        where += ", ".join(map(str, at[:3])) + (", ..." if len(at) > 3 else "")
        report.expect(False, f"{name} was written {where}; {GUARD}")


def _ramp(count: int, step: float = 0.37) -> np.ndarray:
    # Values differ from START and from each other, and alternate in sign.
    return ((np.arange(count) * step + 0.5) * (-1.0) ** np.arange(count)).astype(np.float32)


@exercise(
    "04-4",
    hints=(
        "Each invocation handles one element: which number tells them apart?",
        "id.x runs over all workgroups: 0 to 64 * workgroups - 1. Some of these are too large.",
        "Put everything that touches x or y under one condition: i < params.count.",
    ),
    **KERNEL,
)
def check_squared_relu(answer: Any, report: Report) -> None:
    """Dispatch sizes around that of a workgroup, once with a workgroup too many."""
    cases = {}
    for count, groups in ((1, 1), (64, 2), (67, 2), (1000, 16)):
        x, push = _ramp(count), {"count": count}
        arrays = {"x": x, "y": np.full(count, START, np.float32)}
        cases[f"count={count}"] = (arrays, (groups,), push, np.maximum(x, 0) ** 2)
    _check_kernel(answer, report, cases, "y[i] = max(x[i], 0) squared")


@exercise(
    "04-5",
    hints=(
        "The struct lists what the host pushes: a name and a type for each number.",
        "The host packs by name, so the order of the two members is yours; names and types are "
        "the host's: `count` is a uint, `scale` a float.",
        "In main: the index, the guard, and one line: y[i] = params.scale * a[i] + b[i];",
    ),
    **KERNEL,
)
def check_scaled_sum(answer: Any, report: Report) -> None:
    """Dispatch with several scales; the second input differs from the first."""
    cases = {}
    for count, groups, scale in ((64, 1, 1.0), (67, 2, -0.5), (130, 4, 3.25)):
        a, b, push = _ramp(count), _ramp(count, 1.9), {"count": count, "scale": scale}
        arrays = {"a": a, "b": b, "y": np.full(count, START, np.float32)}
        wanted = np.float32(scale) * a + b
        cases[f"count={count}, scale={scale:g}"] = (arrays, (groups,), push, wanted)
    _check_kernel(answer, report, cases, "y[i] = scale * a[i] + b[i]",
                  {"count": ("uint", "int"), "scale": ("float",)})  # fmt: skip


@exercise(
    "04-6",
    hints=(
        "x is stored row by row: the element in row r, column c has the number r * columns + c.",
        "y has `columns` rows of `rows` elements each: which number has its row c, column r?",
        "The grid is too large in both directions: the guard asks about the row and the column.",
    ),
    **KERNEL,
)
def check_transpose(answer: Any, report: Report) -> None:
    """Dispatch wide and tall matrices with odd sides, with a workgroup too many along each axis."""
    cases = {}
    for rows, columns in ((37, 53), (53, 37), (8, 8), (1, 9)):
        x, push = _ramp(rows * columns), {"rows": rows, "columns": columns}
        arrays = {"x": x, "y": np.full(x.size, START, np.float32)}
        grid = (columns // 8 + 1, rows // 8 + 1)
        wanted = x.reshape(rows, columns).T.reshape(-1)
        cases[f"{rows} rows, {columns} columns"] = (arrays, grid, push, wanted)
    _check_kernel(answer, report, cases, "y is x with rows and columns exchanged")


@exercise(
    "04-7",
    hints=(
        "With 1003 elements, which ones does invocation 250 handle? Which of them exist?",
        "A guard protects one index. Here every invocation has four.",
        "Inside the loop: name the element first + k, and ask whether that one is below count.",
    ),
    **KERNEL,
)
def check_halves(answer: Any, report: Report) -> None:
    """Dispatch counts with every remainder modulo four, once with a workgroup too many."""
    cases = {}
    for count, groups in ((256, 1), (257, 2), (1002, 4), (1003, 5)):
        x, y, push = _ramp(count), np.full(count, START, np.float32), {"count": count}
        cases[f"count={count}"] = ({"x": x, "y": y}, (groups,), push, np.float32(0.5) * x)
    _check_kernel(answer, report, cases, "y[i] = 0.5 * x[i]")
