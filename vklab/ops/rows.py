"""Tensors as rows of elements along one axis, and how kernels share rows out among invocations.

Whoever reduces, scans or normalises along an axis starts here. Visited by lab 07.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.ops.dtypes import ELEMENTS
from vklab.ops.registry import WORKGROUP, grid, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["Rows", "Work", "divide_rows", "rows_of", "value_dtype"]

# Elements that one invocation visits at least before a row is cut, and at most.
LEAST, MOST = {True: 16, False: 64}, 16384
# Invocations that keep a large GPU busy.
BUSY = 65536


@dataclass(frozen=True)
class Rows:
    """How a tensor lies in rows: (outer, columns, inner), the columns `inner` elements apart.

    `wide` gives a row a workgroup, otherwise one invocation; long rows are cut into `parts`.
    """

    outer: int
    columns: int
    inner: int
    wide: bool
    parts: int = 1

    @property
    def count(self) -> int:
        """Return the number of rows, or of parts of them."""
        return self.outer * self.inner * self.parts

    @property
    def part(self) -> int:
        """Return how many elements a part has."""
        return -(-self.columns // self.parts)

    @property
    def lanes(self) -> int:
        """Return the workgroup's size: fewer invocations that do more where rows are many."""
        each = 16 if self.count >= 1024 else 4
        wanted = 1 << max(5, (self.part // each - 1).bit_length())
        return min(WORKGROUP, wanted) if self.wide else WORKGROUP

    @property
    def workgroups(self) -> tuple[int, int, int]:
        """Return the grid."""
        return grid(self.count if self.wide else -(-self.count // self.lanes))

    @property
    def iterations(self) -> int:
        """Return how often an invocation loops to visit its elements once."""
        return -(-self.part // self.lanes) if self.wide else self.part

    @property
    def push(self) -> tuple[tuple[str, int], ...]:
        """Return the push constants that every kernel over rows has."""
        return (("rows", self.count), ("columns", self.columns), ("inner", self.inner))


def rows_of(outer: int, columns: int, inner: int) -> Rows:
    """Choose a workgroup or an invocation for each row; neighbours should read neighbours."""
    few = columns <= 32
    many = inner >= 8 and outer * inner >= 16384
    large = inner >= 32 and outer * columns * inner >= 1 << 18
    return Rows(outer, columns, inner, wide=not (few or many or large))


def divide_rows(rows: Rows) -> Rows:
    """Cut rows that are too long, or too few to keep a GPU busy."""
    lanes = WORKGROUP if rows.wide else 1
    wanted = min(-(-BUSY // (rows.count * lanes)), rows.columns // (LEAST[rows.wide] * lanes))
    parts = max(1, wanted, -(-rows.columns // (MOST * lanes)))
    part = -(-rows.columns // parts)
    return Rows(rows.outer, rows.columns, rows.inner, rows.wide, -(-rows.columns // part))


def value_dtype(dtype: str) -> str:
    """Return the dtype of the type that a kernel computes in: wide enough for sums of parts."""
    names = {"int": "int32", "uint": "uint32", "bool": "uint32", "int64_t": "int64",
             "uint64_t": "uint64", "double": "float64"}  # fmt: skip
    return names.get(ELEMENTS[dtype].value, "float32")


@dataclass
class Work:
    """Dispatches as they are gathered, with the temporaries that they pass on."""

    dispatches: tuple[Dispatch, ...] = ()
    scratch: tuple[TensorInfo, ...] = ()

    def temporary(self, dtype: str, shape: Sequence[int]) -> TensorInfo:
        """Describe a temporary and keep it."""
        info = output(dtype, shape)
        self.scratch += (info,)
        return info
