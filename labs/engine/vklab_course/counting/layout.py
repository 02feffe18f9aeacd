"""Words of the buffer of counters: a header that the judge writes, then what a kernel counts.

One buffer holds everything: counts of each element, of each invocation, a bit for each 32-byte
sector that a workgroup touches, and a log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["ENDLESS_TURNS", "ENTRY", "FIELDS", "HEADER", "Layout", "OWN", "Order", "FACTS",
           "READ", "SECTOR", "SHADOW", "WRITE", "too_large"]  # fmt: skip

READ, WRITE = 1, 2
SECTOR = 32  # bytes
# More turns of loops than any kernel of a lab needs. Mesa's llvmpipe ends all loops of an
# invocation after 65535 turns, without a word.
ENDLESS_TURNS = 65_000
# Words of the header, and for each buffer of the exercise.
HEADER = ("endless", "turn_room", "log_room", "log_at", "dump", "traffic", "records_at",
          "sectors_at", "sectors", "mirrored", "reversed", "grid_x", "grid_y", "grid_z", "local_x",
          "local_y", "local_z", "shadows_at", "cells", "base_x", "base_y", "base_z")  # fmt: skip
FACTS = ("bytes", "elements_at", "read_sectors", "written_sectors")
# Counts of each invocation, and those that it has for each buffer.
FIELDS = ("loads", "stores", "bytes_read", "bytes_written", "barriers", "barrier_path",
          "shared_loads", "shared_stores", "atomics", "turns", "shared_outside", "shared_far",
          "races", "races_by", "races_at", "unset", "unset_by", "unset_at", "logged")  # fmt: skip
OWN = ("read", "written", "atomic", "outside_1", "far_1", "outside_2", "far_2")
SHADOW = 3  # words of an element of a shared array: its writer, its reader, its atomic user
ENTRY = 2  # words of a logged access: buffer and kind, and element
MOST_BYTES = 192 << 20
TRAFFIC_BYTES = 32 << 20


@dataclass(frozen=True)
class Order:
    """Workgroups of a dispatch, and their order.

    Attributes:
        base: the first workgroup along each axis.
        mirrored: whether the last invocation of a workgroup takes the place of the first.
        reversed: whether the last workgroup takes the place of the first.
    """

    base: tuple[int, ...] = (0, 0, 0)
    mirrored: bool = False
    reversed: bool = False


@dataclass(frozen=True)
class Layout:
    """Positions of the counters of one dispatch.

    Attributes:
        grid: workgroups along each axis.
        local: invocations of a workgroup along each axis.
        sizes: bytes of each buffer, by name.
        units: bytes of an element of each buffer, by name.
        room: accesses in the log of all invocations; 0 where neither log nor sectors are kept.
        cells: elements of all shared arrays of a workgroup whose races are watched.
    """

    grid: tuple[int, ...]
    local: tuple[int, ...]
    sizes: Mapping[str, int]
    units: Mapping[str, int]
    room: int
    cells: int = 0

    @property
    def groups(self) -> int:
        """Return the number of workgroups."""
        return math.prod(self.grid)

    @property
    def invocations(self) -> int:
        """Return the number of invocations."""
        return self.groups * math.prod(self.local)

    @property
    def elements(self) -> dict[str, int]:
        """Return the number of elements of each buffer, by name."""
        return {name: -(-size // self.units[name]) for name, size in self.sizes.items()}

    @property
    def record(self) -> int:
        """Return the words of an invocation."""
        return len(FIELDS) + len(OWN) * len(self.sizes)

    @property
    def sector_words(self) -> dict[str, int]:
        """Return the words with a bit for each sector of each buffer, for one kind of access."""
        return {name: -(-size // (SECTOR * 32)) for name, size in self.sizes.items()}

    @property
    def group_words(self) -> int:
        """Return the words with a workgroup's bits for sectors; 0 if these are not counted."""
        words = 2 * sum(self.sector_words.values())
        return words if self.room and words * self.groups * 4 <= TRAFFIC_BYTES else 0

    @property
    def shadow_cells(self) -> int:
        """Return the elements of a workgroup whose races are watched; 0 if there are too many."""
        size = self.cells * SHADOW * 4 * self.groups
        return self.cells if self.room and size <= TRAFFIC_BYTES else 0

    @property
    def log_rows(self) -> int:
        """Return the accesses that the log holds of each invocation."""
        return self.room // max(self.invocations, 1)

    @property
    def starts(self) -> dict[str, int]:
        """Return the first word of each part of the buffer, and its length as `end`."""
        counts = len(HEADER) + len(FACTS) * len(self.sizes)
        records = counts + sum(2 * (n + 1) for n in self.elements.values())
        sectors = records + self.record * self.invocations
        shadows = sectors + self.group_words * self.groups
        dump = shadows + SHADOW * self.shadow_cells * self.groups
        return {
            "counts": counts,
            "records": records,
            "sectors": sectors,
            "shadows": shadows,
            "dump": dump,
            "log": dump + 1,
            "end": dump + 1 + self.invocations * self.log_rows * ENTRY,
        }

    def words(self, order: Order) -> np.ndarray:
        """Return the buffer before a dispatch."""
        starts = self.starts
        words = np.zeros(starts["end"], np.uint32)
        facts = {
            "turn_room": ENDLESS_TURNS,
            "log_room": self.log_rows,
            "log_at": starts["log"],
            "dump": starts["dump"],
            "traffic": self.group_words > 0,
            "records_at": starts["records"],
            "sectors_at": starts["sectors"],
            "sectors": self.group_words,
            "shadows_at": starts["shadows"],
            "cells": self.shadow_cells,
            "mirrored": order.mirrored,
            "reversed": order.reversed,
        }
        for name, numbers in (("grid", self.grid), ("local", self.local), ("base", order.base)):
            facts |= {f"{name}_{axis}": numbers[n] for n, axis in enumerate("xyz")}
        for name, value in facts.items():
            words[HEADER.index(name)] = value
        at, sector, row = starts["counts"], 0, len(HEADER)
        for name, size in self.sizes.items():
            room = self.sector_words[name]
            words[row : row + len(FACTS)] = (size, at, sector, sector + room)
            at, sector = at + 2 * (self.elements[name] + 1), sector + 2 * room
            row += len(FACTS)
        return words


def too_large(layout: Layout) -> str:
    """Return why a dispatch is too large for its counters, or the empty string."""
    size = layout.starts["end"] * 4
    if size <= MOST_BYTES:
        return ""
    return (
        f"{layout.invocations} invocations on {sum(layout.sizes.values())} bytes need {size} "
        f"bytes of counters, at most {MOST_BYTES} are allowed: use a smaller case"
    )
