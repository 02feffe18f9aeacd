"""Counts of one dispatch, read from the words that a kernel with counters has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vklab.course.counting.layout import (
    ENTRY, FIELDS, HEADER, NONE, OUTSIDE_ROOM, OWN, READ, SECTOR, WRITE, Layout,
)  # fmt: skip

__all__ = ["Counts", "Touch", "read_counts"]


@dataclass(frozen=True)
class Touch:
    """One access outside of a buffer or shared array; -1 is the element before the first."""

    invocation: int
    buffer: str
    kind: int
    element: int


@dataclass(frozen=True)
class Counts:
    """Accesses of one dispatch. Invocations are numbered row by row over the whole grid.

    Attributes:
        grid: workgroups along each axis.
        local: invocations of a workgroup along each axis.
        reads: number of reads of each element, for each buffer.
        writes: number of writes of each element, for each buffer; an atomic operation is both.
        outside: number of accesses outside of each buffer.
        outside_first: the first of them, shared arrays included.
        by_invocation: loads, stores, bytes_read, bytes_written, barriers, shared_loads,
            shared_stores, atomics and turns of loops, each by invocation.
        elements_read: elements that each invocation read, for each buffer; again counts again.
        elements_written: elements that each invocation wrote, for each buffer.
        first_written: the first element that each invocation wrote, for each buffer; -1 for none.
        last_written: the last element that each invocation wrote, for each buffer; -1 for none.
        sectors_read: 32-byte sectors that each workgroup read, each once, for each buffer; empty
            for a dispatch that is too large for these counts.
        sectors_written: 32-byte sectors that each workgroup wrote, for each buffer.
        log: rows of invocation, number of the buffer, kind (1 read, 2 write) and element.
        is_log_full: whether there were more accesses than `log` has rows.
    """

    grid: tuple[int, ...]
    local: tuple[int, ...]
    reads: Mapping[str, np.ndarray]
    writes: Mapping[str, np.ndarray]
    outside: Mapping[str, int]
    outside_first: tuple[Touch, ...]
    by_invocation: Mapping[str, np.ndarray]
    elements_read: Mapping[str, np.ndarray]
    elements_written: Mapping[str, np.ndarray]
    first_written: Mapping[str, np.ndarray]
    last_written: Mapping[str, np.ndarray]
    sectors_read: Mapping[str, np.ndarray]
    sectors_written: Mapping[str, np.ndarray]
    log: np.ndarray
    is_log_full: bool

    def total(self, field: str) -> int:
        """Return the sum of a count over all invocations: `total("bytes_read")`."""
        return int(self.by_invocation[field].sum(dtype=np.int64))

    @property
    def traffic(self) -> int:
        """Return the bytes of all sectors that the workgroups touch, each once a workgroup."""
        every = (*self.sectors_read.values(), *self.sectors_written.values())
        return SECTOR * sum(int(sectors.sum()) for sectors in every)

    def group_of(self, invocations: np.ndarray) -> np.ndarray:
        """Return the linear number of the workgroup of each invocation."""
        wide, high = (self.grid[n] * self.local[n] for n in range(2))
        x, y, z = invocations % wide, invocations // wide % high, invocations // (wide * high)
        at = [axis // self.local[n] for n, axis in enumerate((x, y, z))]
        return (at[2] * self.grid[1] + at[1]) * self.grid[0] + at[0]


def read_counts(layout: Layout, words: np.ndarray, shared: Sequence[str]) -> Counts:
    """Return the counts of a dispatch.

    Args:
        layout: where they lie.
        words: the buffer of counters after the dispatch.
        shared: names of the kernel's shared arrays.
    """
    starts, names = layout.starts, list(layout.sizes)
    elements, reads, writes = starts["counts"], {}, {}
    outside = {}
    for name, count in layout.elements.items():
        both = words[elements : elements + 2 * (count + 1)].reshape(2, count + 1)
        reads[name], writes[name] = both[0, :count], both[1, :count]
        outside[name] = int(both[:, count].sum(dtype=np.int64))
        elements += both.size
    records = words[starts["records"] : starts["sectors"]].reshape(-1, layout.record)
    by_field = dict(zip(FIELDS, records.T, strict=False))
    own = {kind: {name: _signed(records[:, len(FIELDS) + n * len(OWN) + row])
                  for n, name in enumerate(names)} for row, kind in enumerate(OWN)}  # fmt: skip
    sectors = _sectors(layout, words)
    far = _log(words, starts["outside"], "outside", OUTSIDE_ROOM)
    known = [*names, *shared]
    logged = int(words[HEADER.index("logged")])
    return Counts(
        layout.grid, layout.local, reads, writes, outside,
        tuple(Touch(int(i), known[b], int(k), int(e)) for i, b, k, e in far),
        by_field, own["read"], own["written"], own["first"], own["last"],
        sectors[READ], sectors[WRITE], _log(words, starts["log"], "logged", layout.room),
        logged > layout.room or (logged == layout.room and layout.room == 0),
    )  # fmt: skip


def _signed(column: np.ndarray) -> np.ndarray:
    return np.where(column == NONE, -1, column.astype(np.int64))


def _log(words: np.ndarray, start: int, count: str, room: int) -> np.ndarray:
    """Return logged accesses as rows of invocation, buffer, kind and element."""
    entries = min(int(words[HEADER.index(count)]), room)
    rows = words[start : start + ENTRY * entries].reshape(-1, ENTRY).astype(np.int64)
    element = np.where(rows[:, 2] < 2**31, rows[:, 2], rows[:, 2] - 2**32)
    return np.column_stack([rows[:, 0], rows[:, 1] // 4, rows[:, 1] % 4, element])


def _sectors(layout: Layout, words: np.ndarray) -> dict[int, dict[str, np.ndarray]]:
    """Return the sectors that each workgroup touches, by kind of access and buffer."""
    found: dict[int, dict[str, np.ndarray]] = {READ: {}, WRITE: {}}
    if not layout.group_words:
        return found
    starts, at = layout.starts, 0
    bits = words[starts["sectors"] : starts["dump"]].reshape(layout.groups, -1)
    for name, count in layout.sector_words.items():
        for kind in (READ, WRITE):
            mine = np.ascontiguousarray(bits[:, at : at + count])
            ones = np.unpackbits(mine.view(np.uint8), axis=1)
            found[kind][name] = ones.sum(axis=1, dtype=np.int64)
            at += count
    return found
