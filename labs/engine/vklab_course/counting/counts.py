"""Counts of one dispatch, read from the words that a kernel with counters has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vklab_course.counting.layout import (
    ENTRY,
    FIELDS,
    OWN,
    READ,
    SECTOR,
    WRITE,
    Layout,
)

__all__ = ["Counts", "Touch", "read_counts"]

MOST_OUTSIDE = 16  # of each array


@dataclass(frozen=True)
class Touch:
    """One access to a buffer or shared array; -1 is the element before the first."""

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
        reads: number of reads of each element, for each buffer, in the dispatch `counted` only.
        writes: number of writes of each element, for each buffer; an atomic operation is both.
        outside: number of accesses outside of each buffer.
        outside_first: the first of each invocation, shared arrays included, for a few invocations.
        races: accesses to an element of a shared array that another invocation writes, or reads
            while this one writes, with no barrier between them; the first of a few invocations.
        unset: reads of elements of a shared array that nobody had written.
        by_invocation: loads, stores, bytes_read, bytes_written, barriers, barrier_path (a number
            that differs where other barriers are met), shared_loads, shared_stores, atomics, turns
            of loops and accesses outside of shared arrays (shared_outside), each by invocation.
        elements_read: elements that each invocation read, for each buffer; again counts again.
        elements_written: elements that each invocation wrote, for each buffer.
        elements_atomic: elements of these that it wrote by atomic operations, for each buffer.
        sectors_read: 32-byte sectors that each workgroup read, each once, for each buffer; empty
            for a dispatch that is too large for these counts.
        sectors_written: 32-byte sectors that each workgroup wrote, for each buffer.
        log: rows of invocation, number of the buffer, kind (1 read, 2 write) and element.
        is_log_full: whether an invocation made more accesses than `log` has rows for it.
    """

    grid: tuple[int, ...]
    local: tuple[int, ...]
    reads: Mapping[str, np.ndarray]
    writes: Mapping[str, np.ndarray]
    outside: Mapping[str, int]
    outside_first: tuple[Touch, ...]
    races: tuple[Touch, ...]
    unset: tuple[Touch, ...]
    by_invocation: Mapping[str, np.ndarray]
    elements_read: Mapping[str, np.ndarray]
    elements_written: Mapping[str, np.ndarray]
    elements_atomic: Mapping[str, np.ndarray]
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

    def logged(self, buffer: str, kind: int) -> np.ndarray:
        """Return rows of invocation and element, one for each access of a kind to a buffer."""
        chosen = (self.log[:, 1] == list(self.writes).index(buffer)) & (self.log[:, 2] == kind)
        return np.asarray(self.log[chosen][:, [0, 3]])

    def sectors_a_load(self, buffer: str, *, neighbours: int = 32) -> float:
        """Return how many sectors some neighbours touch in one load of a buffer, on average.

        Neighbours follow each other along x, then y, inside a workgroup, as the invocations of a
        subgroup do. The n-th loads of all of them count as one. Infinite for an incomplete log.

        Args:
            buffer: name of a buffer of floats.
            neighbours: invocations that load together.
        """
        rows = self.logged(buffer, READ)
        if self.is_log_full:
            return float("inf")
        if not rows.size:
            return 0.0
        who, elements = rows.T
        wide = self.grid[0] * self.local[0]
        local = who // wide % self.local[1] * self.local[0] + who % wide % self.local[0]
        order = np.argsort(who, kind="stable")
        first = np.searchsorted(who[order], who)
        turn = np.empty(len(who), np.int64)
        turn[order] = np.arange(len(who)) - first[order]
        together = self.group_of(who) * (local.max() + 1) + local // neighbours
        loads, load = np.unique(together * (turn.max() + 1) + turn, return_inverse=True)
        sectors = elements * 4 // SECTOR
        return len(np.unique(load * (sectors.max() + 1) + sectors)) / len(loads)


def read_counts(layout: Layout, words: np.ndarray, shared: Sequence[str]) -> Counts:
    """Return the counts of a dispatch.

    Args:
        layout: where they lie.
        words: the buffer of counters after the dispatch.
        shared: names of the kernel's shared arrays.
    """
    starts, names = layout.starts, list(layout.sizes)
    elements, reads, writes = starts["counts"], {}, {}
    for name, count in layout.elements.items():
        both = words[elements : elements + 2 * (count + 1)].reshape(2, count + 1)
        reads[name], writes[name] = both[0, :count], both[1, :count]
        elements += both.size
    records = words[starts["records"] : starts["sectors"]].reshape(-1, layout.record)
    by_field = dict(zip(FIELDS, records.T, strict=False))
    known = [*names, *shared]
    own = {
        kind: {name: records[:, len(FIELDS) + n * len(OWN) + row] for n, name in enumerate(names)}
        for row, kind in enumerate(OWN)
    }
    sectors = _sectors(layout, words)
    return Counts(
        layout.grid,
        layout.local,
        reads,
        writes,
        {
            name: sum(
                int(own[f"outside_{kind}"][name].sum(dtype=np.int64)) for kind in (READ, WRITE)
            )
            for name in names
        },
        _outside(own, by_field, known),
        _noted(by_field, known, "races"),
        _noted(by_field, known, "unset"),
        by_field,
        own["read"],
        own["written"],
        own["atomic"],
        sectors[READ],
        sectors[WRITE],
        _log(layout, words, by_field["logged"]),
        not layout.room or bool((by_field["logged"] > layout.log_rows).any()),
    )


def _outside(
    own: Mapping[str, Mapping[str, np.ndarray]],
    by_field: Mapping[str, np.ndarray],
    names: Sequence[str],
) -> tuple[Touch, ...]:
    """Return the first access outside of each array by each invocation, for the first few."""
    found = []
    for kind in (WRITE, READ):
        for name, column in own[f"outside_{kind}"].items():
            for i in np.flatnonzero(column)[:MOST_OUTSIDE]:
                element = int(_signed(own[f"far_{kind}"][name][i]))
                found.append(Touch(int(i), name, kind, element))
    for i in np.flatnonzero(by_field["shared_outside"])[:MOST_OUTSIDE]:
        number, kind = divmod(int(by_field["shared_far"][i]), 4)
        found.append(Touch(int(i), names[number], kind, -1))
    return tuple(found)


def _noted(
    by_field: Mapping[str, np.ndarray], names: Sequence[str], what: str
) -> tuple[Touch, ...]:
    found = []
    for i in np.flatnonzero(by_field[what])[:MOST_OUTSIDE]:
        number, kind = divmod(int(by_field[f"{what}_by"][i]), 4)
        found.append(Touch(int(i), names[number], kind, int(by_field[f"{what}_at"][i])))
    return tuple(found)


def _signed(words: np.ndarray) -> np.ndarray:
    """Return words as signed numbers."""
    wide = words.astype(np.int64)
    return np.where(wide < 2**31, wide, wide - 2**32)


def _log(layout: Layout, words: np.ndarray, logged: np.ndarray) -> np.ndarray:
    """Return logged accesses as rows of invocation, buffer, kind and element."""
    starts, rows = layout.starts, layout.log_rows
    table = words[starts["log"] : starts["end"]].reshape(layout.invocations, rows, ENTRY)
    there = np.arange(rows) < logged[:, None]
    invocations = np.nonzero(there)[0]
    tags, elements = table[there].astype(np.uint32).T
    tags = tags.astype(np.int64)
    return np.column_stack([invocations, tags // 4, tags % 4, _signed(elements)])


def _sectors(layout: Layout, words: np.ndarray) -> dict[int, dict[str, np.ndarray]]:
    """Return the sectors that each workgroup touches, by kind of access and buffer."""
    found: dict[int, dict[str, np.ndarray]] = {READ: {}, WRITE: {}}
    if not layout.group_words:
        return found
    starts, at = layout.starts, 0
    bits = words[starts["sectors"] : starts["shadows"]].reshape(layout.groups, -1)
    for name, count in layout.sector_words.items():
        for kind in (READ, WRITE):
            mine = np.ascontiguousarray(bits[:, at : at + count])
            ones = np.unpackbits(mine.view(np.uint8), axis=1)
            found[kind][name] = ones.sum(axis=1, dtype=np.int64)
            at += count
    return found
