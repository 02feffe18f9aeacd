"""Lab 04: the picture of its seven steps, the tracer of its kernels, and the checks.

The tracer runs a twin of a kernel whose every `x[i]` reads `x[vklab_touch(..., i)]`: on the device
itself each invocation notes which element it touches. Decides nothing about right or wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.course import Run, run_kernel
from vklab.course.exercise import exercise
from vklab.course.kernel_check import dispatch
from vklab.course.report import Report, Stopped
from vklab.course.run_kernel import Dispatched
from vklab.draw import PALETTE
from vklab.errors import ShaderError

__all__ = [
    "Traced", "check_halves", "check_scaled_sum", "check_squared_relu", "check_transpose",
    "check_workgroups", "objects_svg", "trace", "twin",
]  # fmt: skip

# ------------------------------------------------------------------------------ the seven steps
STEPS = (
    ("1 instance, device", "instance:the loader", "physical device:instance",
     "device:physical device", "queue:device"),
    ("2 compile", "SPIR-V:vector_add"),
    ("3 shader module", "shader module:device, SPIR-V"),
    ("4 pipeline", "set layout:device", "pipeline layout:set layout", "pipeline:module, layout"),
    ("5 buffers", "buffers:device", "memory:device", "descriptor set:set layout, buffers"),
    ("6 record", "command pool:queue family", "command buffer:pool, pipeline, set"),
    ("7 submit and wait", "fence:device"),
)  # fmt: skip


def objects_svg(made: Collection[str], step: int) -> str:
    """Draw what exists after a step: new boxes filled, others outlined, later ones dashed."""
    parts = []
    for row, (label, *boxes) in enumerate(STEPS):
        y, new = row * 44 + 6, row + 1 == step
        weight = "bold" if new else "normal"
        parts.append(f'<text x="6" y="{y + 23}" font-weight="{weight}">{label}</text>')
        for column, (box, source) in enumerate(item.split(":") for item in boxes):
            x, there = 152 + column * 166, box in made
            line, fill = (PALETTE[1], "#fde7bd") if new and there else (PALETTE[0], "#fff")
            style = 'stroke-width="2.5"' if there else 'stroke-dasharray="4 3" opacity="0.45"'
            parts.append(  # fmt: skip
                f'<rect x="{x}" y="{y}" width="156" height="36" rx="5" stroke="{line}" {style} '
                f'fill="{fill}"/><text x="{x + 9}" y="{y + 16}">{box}</text>'
                f'<text x="{x + 9}" y="{y + 30}" font-size="11">from {source}</text>')
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 818 312" width="818" '
            'style="max-width:100%;background:#fff" font-family="sans-serif" font-size="13" '
            f'fill="#222">{"".join(parts)}</svg>')  # fmt: skip


# ----------------------------------------------------------------------------------- the tracer
CAPACITY = 40_000
READ, WRITE = 1, 2
GLSL = """layout(set = 0, binding = 15) buffer vklab_Touched { uint vklab_touched[]; };
#define vklab_by gl_GlobalInvocationID
#define InterlockedAdd(counter, more, before) before = atomicAdd(counter, more)
"""
SLANG = "[[vk::binding(15, 0)]] RWStructuredBuffer<uint> vklab_touched;\nstatic uint3 vklab_by;\n"
TOUCH = f"""uint vklab_touch(uint what, uint length, uint element) {{
    uint at; InterlockedAdd(vklab_touched[0], 1u, at);
    if (at < {CAPACITY}u) {{
        vklab_touched[4 * at + 1] = vklab_by.x; vklab_touched[4 * at + 2] = vklab_by.y;
        vklab_touched[4 * at + 3] = what; vklab_touched[4 * at + 4] = element;
    }}
    return min(element, length);
}}
"""
# A buffer's name, its index (with one index inside, at most), and how it is assigned, if it is.
INDEXED = r"(?<![\w.])({})\s*\[((?:[^][]|\[[^][]*\])+)\]\s*(?=(\+\+|--|[-+*/%&|^]=|=(?!=))?)"
Arrays = Mapping[str, np.ndarray]


def _is_glsl(text: str) -> bool:
    return bool(re.search(r"^\s*#version", text, re.M))


def _named(text: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """Return buffers by the names that a kernel gives them: GLSL names the block, in capitals."""
    return {name.upper() if _is_glsl(text) else name: a for name, a in arrays.items()}


def twin(text: str, lengths: Mapping[str, int]) -> str:
    """Return a kernel that does the same, and notes every element that it touches.

    Args:
        lengths: elements of each buffer; an element behind the end is noted, not touched.
    """
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    lines = _touching(plain, lengths).splitlines()
    opens = re.compile(r"\s*(#version|#extension|import\b|module\b)")
    head = max((n for n, line in enumerate(lines, 1) if opens.match(line)), default=0)
    start, rest = "\n".join(lines[:head]) + "\n", "\n".join(lines[head:])
    if _is_glsl(text):
        return start + GLSL + TOUCH + rest
    # Slang gives ids to main only: it takes one more, and leaves it where vklab_touch finds it.
    main = re.search(r"\bmain\s*\((?P<given>[^)]*)\)[^{]*\{", rest)
    if main is None:
        return start + SLANG + TOUCH + rest
    end, comma = main.end("given"), ", " if main["given"].strip() else ""
    return (start + SLANG + TOUCH + rest[:end] + f"{comma}uint3 vklab_id : SV_DispatchThreadID"
            + rest[end : main.end()] + " vklab_by = vklab_id;" + rest[main.end() :])  # fmt: skip


def _touching(code: str, lengths: Mapping[str, int]) -> str:
    def touch(match: re.Match[str]) -> str:
        name, index, assigned = match.groups()
        kind = READ if not assigned else WRITE if assigned == "=" else READ | WRITE
        what = f"{list(lengths).index(name) * 4 + kind}u, {lengths[name]}u"
        return f"{name}[vklab_touch({what}, uint({_touching(index, lengths)}))] "

    return re.sub(INDEXED.format("|".join(lengths)), touch, code)


@dataclass(frozen=True)
class Traced:
    """Which invocation touched which element: rows of `touches` are x, y, buffer, kind, element."""

    size: tuple[int, int]
    local: tuple[int, int]
    lengths: Mapping[str, int]
    touches: np.ndarray
    full: bool = False

    def of(self, name: str, kind: int = WRITE) -> np.ndarray:
        """Return the x, y and element of each touch of a buffer."""
        rows = self.touches[self.touches[:, 2] == list(self.lengths).index(name)]
        return rows[(rows[:, 3] & kind) > 0][:, (0, 1, 4)]

    def outside(self, name: str) -> int:
        """Count the touches of elements that a buffer does not have."""
        return sum(int((self.of(name, k)[:, 2] >= self.lengths[name]).sum()) for k in (READ, WRITE))

    def __str__(self) -> str:
        active = len(np.unique(self.touches[:, :2], axis=0))
        lines = [f"{self.size[0] * self.size[1]} invocations, {active} of them touch something"]
        lines += [f"{name}: {len(self.of(name, READ))} reads, {len(self.of(name))} writes, "
                  f"{self.outside(name)} outside" for name in self.lengths]  # fmt: skip
        lines += ["log full: more was touched than is counted here"] * self.full
        return "\n".join(lines)

    __repr__ = __str__


def _dispatched(text: str, run: Run) -> Dispatched:
    """Run a kernel; push constants that it never uses, and so lost when compiled, stay away."""
    done = run_kernel(text, run, seconds=4)[0]
    used = _used(done.message, run.push)
    return done if used is None else run_kernel(text, replace(run, push=used), seconds=4)[0]


def _used(message: str, push: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the push constants that a kernel still has, where a message says some are gone."""
    listed = re.search(r"takes push constants \[(.*?)\]", message)
    taken = re.findall(r"'(\w+)'", listed[1]) if listed else []
    if listed is None or not set(taken) < set(push):
        return None
    return {name: push[name] for name in taken}


def trace(text: str, arrays: Arrays, groups: tuple[int, ...], push: Mapping[str, Any]) -> Traced:
    """Run a kernel's twin on the device; return what each invocation touched.

    Raises NotImplementedError for an unsolved stub, ShaderError where the kernel does not run.
    """
    lengths = {name: array.size for name, array in arrays.items()}
    log = "vklab_Touched" if _is_glsl(text) else "vklab_touched"
    run = Run(_named(text, arrays) | {log: np.zeros(4 * CAPACITY + 1, np.uint32)}, groups, push)
    done = _dispatched(twin(text, lengths), run)
    if done.status != "ran":
        plain = _dispatched(text, replace(run, buffers=_named(text, arrays)))
        if plain.status == "not_attempted":
            raise NotImplementedError(plain.message)
        raise ShaderError(plain.message or f"this kernel cannot be traced: {done.message}")
    words = done.buffers[log].astype(np.int64)
    rows = words[1 : 1 + 4 * min(int(words[0]), CAPACITY)].reshape(-1, 4)
    rows = np.column_stack([rows[:, :2], rows[:, 2] // 4, rows[:, 2] % 4, rows[:, 3]])
    local, (wide, high, *_) = _local_size(text), (*groups, 1)
    size, full = (local[0] * wide, local[1] * high), bool(words[0] > CAPACITY)
    return Traced(size, local, lengths, rows, full)


def _local_size(text: str) -> tuple[int, int]:
    sizes = (r"local_size_x\s*=\s*(\d+)", r"local_size_y\s*=\s*(\d+)") if _is_glsl(text) else (
        r"numthreads\s*\(\s*(\d+)", r"numthreads\s*\(\s*\d+\s*,\s*(\d+)")  # fmt: skip
    x, y = (int((re.search(size, text) or [0, 1])[1]) for size in sizes)
    return x, y


# ----------------------------------------------------------------------------------- the checks
GRID = "vklab.ops.registry.grid"
START = -1.0  # what every output holds before: an element that nobody writes keeps it
NEVER = f"{START:g} means: nobody wrote it"
GUARD = "is there a guard, and is the index right?"
KERNEL: dict[str, Any] = {"points": 4, "takes": "kernel", "seconds": 60}


def _ints(got: Any) -> str:
    whole = isinstance(got, tuple | list) and all(isinstance(n, int | np.integer) for n in got)
    return "" if whole or got is None else "three ints in a tuple, please; np.ceil makes floats"


@exercise(
    "04-1",
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
            report.equal(got := report.call(answer, count, size), (x, 1, 1), _ints(got))
    with report.part("above 65535 workgroups the grid continues along y", 2):
        for groups, expected in ((65535, (65535, 1, 1)), (65536, (32768, 2, 1)),
                                 (65537, (32768, 3, 1)), (98304, (32768, 3, 1)),
                                 (1_000_000, (32768, 31, 1))):  # fmt: skip
            on = f"count={groups * 64} (that is {groups} workgroups of 64)"
            report.equal(got := report.call(answer, groups * 64, 64, on=on), expected, _ints(got))


Case = tuple[Arrays, tuple[int, ...], Mapping[str, Any], np.ndarray]


def _check_kernel(text: str, report: Report, cases: Mapping[str, Case], values: str) -> None:
    """Dispatch on every case; one part for the values of y, one for what lies around it."""
    runs = [Run(_named(text, arrays), groups, push) for arrays, groups, push, _ in cases.values()]
    try:
        results = dispatch(report, text, runs, seconds=4)
    except Stopped as stop:
        used = _used(str(stop), runs[0].push)
        if used is None:
            raise
        unused = ", ".join(sorted(set(runs[0].push) - set(used)))
        report.note(f"pushed, and never used by the kernel: {unused}")
        runs = [replace(run, push={name: run.push[name] for name in used}) for run in runs]
        results = dispatch(report, text, runs, seconds=4)
    done = dict(zip(cases, results, strict=True))
    with report.part(values, 2):
        for case, result in done.items():
            report.on(case)
            got = result.buffers["Y" if _is_glsl(text) else "y"]
            report.close(got, cases[case][3], 1e-5, 1e-5, NEVER if (got == START).any() else "")
    with report.part("the guard words around y are untouched", 2):
        for case, result in done.items():
            report.on(case)
            for name, at in result.out_of_bounds.items():
                where = "behind its end, at byte " if at[-1] > 0 else "before its start, at byte "
                where += ", ".join(map(str, at[:3])) + (", ..." if len(at) > 3 else "")
                report.expect(False, f"{name} was written {where}; {GUARD}")


def _ramp(count: int, step: float = 0.37) -> np.ndarray:
    # Never START, never twice the same, and positive and negative in turn.
    return ((np.arange(count) * step + 0.5) * (-1.0) ** np.arange(count)).astype(np.float32)


@exercise(
    "04-2",
    hints=(
        "Each invocation handles one element: which number tells them apart?",
        "id.x runs over all workgroups: 0 to 64 * workgroups - 1. Some of these are too large.",
        "Put everything that touches x or y under one condition: i < params.count.",
    ),
    **KERNEL,
)
def check_squared_relu(answer: Any, report: Report) -> None:
    """Dispatch at sizes around the workgroup, once with a workgroup that has no work at all."""
    cases = {}
    for count, groups in ((1, 1), (64, 2), (67, 2), (1000, 16)):
        x, push = _ramp(count), {"count": count}
        arrays = {"x": x, "y": np.full(count, START, np.float32)}
        cases[f"count={count}"] = (arrays, (groups,), push, np.maximum(x, 0) ** 2)
    _check_kernel(answer, report, cases, "y[i] = max(x[i], 0) squared")


@exercise(
    "04-3",
    hints=(
        "The struct lists what the host pushes: a name and a type for each number.",
        "The host packs by name, so the order of the two members is yours; the names are not.",
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
    _check_kernel(answer, report, cases, "y[i] = scale * a[i] + b[i]")


@exercise(
    "04-4",
    hints=(
        "x is stored row by row: the element in row r, column c has the number r * columns + c.",
        "y has `columns` rows of `rows` elements each: which number has its row c, column r?",
        "The grid is too large in both directions: the guard asks about the row and the column.",
    ),
    **KERNEL,
)
def check_transpose(answer: Any, report: Report) -> None:
    """Dispatch odd matrices, wide and tall, with one workgroup too many each way."""
    cases = {}
    for rows, columns in ((37, 53), (53, 37), (8, 8), (1, 9)):
        x, push = _ramp(rows * columns), {"rows": rows, "columns": columns}
        arrays = {"x": x, "y": np.full(x.size, START, np.float32)}
        grid = (columns // 8 + 1, rows // 8 + 1)
        wanted = x.reshape(rows, columns).T.reshape(-1)
        cases[f"{rows} rows, {columns} columns"] = (arrays, grid, push, wanted)
    _check_kernel(answer, report, cases, "y is x with rows and columns exchanged")


@exercise(
    "04-5",
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
