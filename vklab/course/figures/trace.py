"""Trace the kernels of lab 04: record the buffer elements that each invocation accesses.

The tracer runs a clone of a kernel with `x[vklab_touch(..., i)]` in place of every `x[i]`, so the
accesses are logged on the device itself. The checks decide between right and wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.course import Run, run_kernel
from vklab.errors import ShaderError

__all__ = ["READ", "WRITE", "Traced", "clone", "is_glsl", "named", "trace", "trace_runs"]

CAPACITY = 40_000
READ, WRITE = 1, 2
# The log: the number of accesses, the lengths of the buffers, then four words an access.
BUFFERS, WORDS = 7, 4
FIRST = 1 + BUFFERS
GLSL = """layout(set = 0, binding = 15) buffer vklab_Touched { uint vklab_touched[]; };
#define vklab_by gl_GlobalInvocationID
#define InterlockedAdd(counter, more, before) before = atomicAdd(counter, more)
"""
SLANG = "[[vk::binding(15, 0)]] RWStructuredBuffer<uint> vklab_touched;\nstatic uint3 vklab_by;\n"
TOUCH = f"""uint vklab_touch(uint what, uint element) {{
    uint at; InterlockedAdd(vklab_touched[0], 1u, at);
    if (at < {CAPACITY}u) {{
        at = {FIRST}u + {WORDS}u * at;
        vklab_touched[at] = vklab_by.x; vklab_touched[at + 1] = vklab_by.y;
        vklab_touched[at + 2] = what; vklab_touched[at + 3] = element;
    }}
    return min(element, vklab_touched[1u + what / 4u]);
}}
"""
# A buffer's name, its index (with at most one index inside), and the assignment operator, if any.
INDEXED = r"(?<![\w.])({})\s*\[((?:[^][]|\[[^][]*\])+)\]\s*(?=(\+\+|--|[-+*/%&|^]=|=(?!=))?)"
Arrays = Mapping[str, np.ndarray]


def is_glsl(text: str) -> bool:
    """Tell whether a kernel is GLSL: it has a #version line."""
    return bool(re.search(r"^\s*#version", text, re.M))


def named(text: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """Return buffers by their names in a kernel: in GLSL the block's name, in capitals."""
    return {name.upper() if is_glsl(text) else name: a for name, a in arrays.items()}


def clone(text: str, names: Collection[str]) -> str:
    """Return a clone of a kernel that also logs every access to the named buffers.

    An access behind the end of a buffer is logged, and redirected to one word at the end.
    """
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    lines = _touching(plain, names).splitlines()
    opens = re.compile(r"\s*(#version|#extension|import\b|module\b)")
    head = max((n for n, line in enumerate(lines, 1) if opens.match(line)), default=0)
    start, rest = "\n".join(lines[:head]) + "\n", "\n".join(lines[head:])
    if is_glsl(text):
        return start + GLSL + TOUCH + rest
    # Slang passes ids to main only: main stores its id in a static for vklab_touch.
    main = re.search(r"\bmain\s*\((?P<given>[^)]*)\)[^{]*\{", rest)
    if main is None:
        return start + SLANG + TOUCH + rest
    end, comma = main.end("given"), ", " if main["given"].strip() else ""
    return (start + SLANG + TOUCH + rest[:end] + f"{comma}uint3 vklab_id : SV_DispatchThreadID"
            + rest[end : main.end()] + " vklab_by = vklab_id;" + rest[main.end() :])  # fmt: skip


def _touching(code: str, names: Collection[str]) -> str:
    def touch(match: re.Match[str]) -> str:
        name, index, assigned = match.groups()
        kind = READ if not assigned else WRITE if assigned == "=" else READ | WRITE
        tag = list(names).index(name) * 4 + kind
        return f"{name}[vklab_touch({tag}u, uint({_touching(index, names)}))] "

    return re.sub(INDEXED.format("|".join(names)), touch, code)


@dataclass(frozen=True)
class Traced:
    """Accesses of a dispatch: rows of `touches` are x, y, buffer, kind, element."""

    size: tuple[int, int]
    local: tuple[int, int]
    lengths: Mapping[str, int]
    touches: np.ndarray
    full: bool = False

    def of(self, name: str, kind: int = WRITE) -> np.ndarray:
        """Return the x, y and element of each access to a buffer."""
        rows = self.touches[self.touches[:, 2] == list(self.lengths).index(name)]
        return rows[(rows[:, 3] & kind) > 0][:, (0, 1, 4)]

    def outside(self, name: str, kind: int = READ | WRITE) -> list[int]:
        """Return the accessed elements outside of a buffer, each once; -1 for 2**32 - 1."""
        elements = self.of(name, kind)[:, 2]
        beyond = np.unique(elements[elements >= self.lengths[name]])
        return sorted(np.where(beyond < 2**31, beyond, beyond - 2**32).tolist(), key=abs)

    def __str__(self) -> str:
        count = self.size[0] * self.size[1]
        active = len(np.unique(self.touches[:, :2], axis=0))
        lines = [f"{count} invocations: {active} touch something, {count - active} are idle"]
        for name, length in self.lengths.items():
            both = [self.of(name, kind)[:, 2] for kind in (READ, WRITE)]
            outside = sum(int((elements >= length).sum()) for elements in both)
            lines.append(f"{name}: {len(both[0])} reads, {len(both[1])} writes, {outside} outside")
        lines += ["log full: more was touched than is counted here"] * self.full
        return "\n".join(lines)

    __repr__ = __str__


def trace(text: str, arrays: Arrays, groups: tuple[int, ...], push: Mapping[str, Any]) -> Traced:
    """Run a kernel's clone on the device; return the accesses of each invocation.

    Args:
        text: the kernel.
        arrays: its buffers, by name.
        groups: workgroups along each axis.
        push: its push constants, by name.

    Raises NotImplementedError for an unsolved stub, ShaderError where the kernel does not run.
    """
    return trace_runs(text, [Run(arrays, groups, push)])[0]


def trace_runs(text: str, runs: Sequence[Run]) -> list[Traced]:
    """Trace several dispatches of one kernel, with buffers named like their arrays."""
    log = "vklab_Touched" if is_glsl(text) else "vklab_touched"
    logged = []
    for run in runs:
        words = np.zeros(FIRST + WORDS * CAPACITY, np.uint32)
        words[1 : 1 + len(run.buffers)] = [array.size for array in run.buffers.values()]
        logged.append(replace(run, buffers=named(text, run.buffers) | {log: words}))
    done = run_kernel(clone(text, runs[0].buffers), logged, seconds=4)
    failed = next((result for result in done if result.status != "ran"), None)
    if failed is not None:
        plain = run_kernel(text, [replace(r, buffers=named(text, r.buffers)) for r in runs], "", 4)
        worst = next((result for result in plain if result.status != "ran"), None)
        if worst is not None and worst.status == "not_attempted":
            raise NotImplementedError(worst.message)
        raise ShaderError(worst.message if worst else
                          f"this kernel cannot be traced: {failed.message}")  # fmt: skip
    return [_traced(text, run, result.buffers[log].astype(np.int64))
            for run, result in zip(runs, done, strict=True)]  # fmt: skip


def _traced(text: str, run: Run, words: np.ndarray) -> Traced:
    count = int(words[0])
    rows = words[FIRST : FIRST + WORDS * min(count, CAPACITY)].reshape(-1, WORDS)
    rows = np.column_stack([rows[:, :2], rows[:, 2] // 4, rows[:, 2] % 4, rows[:, 3]])
    local, (wide, high, *_) = _local_size(text), (*run.workgroups, 1)
    lengths = {name: array.size for name, array in run.buffers.items()}
    return Traced((local[0] * wide, local[1] * high), local, lengths, rows, count > CAPACITY)


def _local_size(text: str) -> tuple[int, int]:
    sizes = (r"local_size_x\s*=\s*(\d+)", r"local_size_y\s*=\s*(\d+)") if is_glsl(text) else (
        r"numthreads\s*\(\s*(\d+)", r"numthreads\s*\(\s*\d+\s*,\s*(\d+)")  # fmt: skip
    x, y = (int((re.search(size, text) or [0, 1])[1]) for size in sizes)
    return x, y
