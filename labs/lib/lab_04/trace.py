"""Trace a kernel for pictures: which invocation touches which element, as counted in its SPIR-V."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vklab.errors import ShaderError
from vklab_course.children.kernel_answers import named
from vklab_course.children.run_kernel import Run
from vklab_course.counting.observe import Observed, observe_kernel

__all__ = ["READ", "WRITE", "Traced", "trace"]

READ, WRITE = 1, 2


@dataclass(frozen=True)
class Traced:
    """Accesses of one dispatch.

    Attributes:
        size: invocations along x and y.
        local: invocations of a workgroup along x and y.
        lengths: number of elements of each buffer.
        reads: number of reads of each element, for each buffer.
        writes: number of writes of each element, for each buffer.
        outside: number of accesses outside of each buffer.
        touches: rows of x, y, buffer, kind and element.
        full: whether more was touched than there are rows.
    """

    size: tuple[int, int]
    local: tuple[int, int]
    lengths: Mapping[str, int]
    reads: Mapping[str, np.ndarray]
    writes: Mapping[str, np.ndarray]
    outside: Mapping[str, int]
    touches: np.ndarray
    full: bool

    def of(self, name: str, kind: int = WRITE) -> np.ndarray:
        """Return the x, y and element of each access to a buffer; reads or writes."""
        rows = self.touches[self.touches[:, 2] == list(self.lengths).index(name)]
        return rows[rows[:, 3] == kind][:, (0, 1, 4)]

    def __str__(self) -> str:
        count = self.size[0] * self.size[1]
        active = len(np.unique(self.touches[:, :2], axis=0))
        idle = f"{active} touch something, {count - active} are idle"
        lines = [f"{count} invocations: {'the log is full' if self.full else idle}"]
        lines += [
            f"{name}: {self.reads[name].sum()} reads, {self.writes[name].sum()} writes, "
            f"{self.outside[name]} outside"
            for name in self.lengths
        ]
        return "\n".join(lines)

    __repr__ = __str__


def trace(
    text: str, arrays: Mapping[str, np.ndarray], groups: tuple[int, ...], push: Mapping[str, Any]
) -> Traced:
    """Run a kernel with counters on the device; return the accesses of each invocation.

    Raises NotImplementedError for an unsolved stub, ShaderError where the kernel does not run.

    Args:
        text: the kernel.
        arrays: its buffers, by name.
        groups: workgroups along each axis.
        push: its push constants, by name.
    """
    done = observe_kernel(text, Run(named(text, arrays), groups, push), dispatches=("counted",))[0]
    if done.status == "not_attempted":
        raise NotImplementedError(done.message)
    if done.status != "ran":
        raise ShaderError(done.message)
    return _traced(done, dict(zip(named(text, arrays), arrays, strict=True)))


def _traced(done: Observed, given: Mapping[str, str]) -> Traced:
    """Return counts by the arrays' names; a buffer that the kernel never uses counts nothing."""
    counts, log = done.counts, done.counts.log
    wide = counts.grid[0] * counts.local[0]
    lengths = {own: done.run.buffers[name].size for name, own in given.items()}
    none = {own: np.zeros(length, np.int64) for own, length in lengths.items()}
    known = [list(given).index(name) for name in counts.reads]
    buffers = np.array([*known, *[-1] * len(log)])[log[:, 1]]  # shared arrays come last
    touches = np.column_stack([log[:, 0] % wide, log[:, 0] // wide, buffers, log[:, 2:]])
    return Traced(
        (wide, counts.grid[1] * counts.local[1]),
        (counts.local[0], counts.local[1]),
        lengths,
        {**none, **{given[name]: each for name, each in counts.reads.items()}},
        {**none, **{given[name]: each for name, each in counts.writes.items()}},
        {given[name]: counts.outside.get(name, 0) for name in given},
        touches[buffers >= 0],
        counts.is_log_full,
    )
