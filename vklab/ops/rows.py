"""Divide a tensor into rows along an axis, and the rows among workgroups or invocations.

Reductions, scans and normalisations along an axis use these rows. Visited by lab 07.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.ops.dtypes import ELEMENTS
from vklab.ops.registry import WORKGROUP, grid, output
from vklab.types import Dispatch, TensorInfo

# Elements of one invocation: the least before a row is cut (by `wide`), and the most.
LEAST, MOST = {True: 16, False: 64}, 16384
# Invocations that keep a large GPU busy.
BUSY = 1 << 19


@dataclass(frozen=True)
class Rows:
    """Describe a tensor as rows: (outer, columns, inner), with columns `inner` elements apart.

    A row takes a workgroup if `wide`, else one invocation; long rows are cut into `parts`.
    """

    outer: int
    columns: int
    inner: int
    wide: bool
    parts: int = 1

    @property
    def count(self) -> int:
        """Return the number of rows, each part of a row counted."""
        return self.outer * self.inner * self.parts

    @property
    def part(self) -> int:
        """Return the number of elements of a part."""
        return -(-self.columns // self.parts)

    @property
    def lanes(self) -> int:
        """Return the workgroup's size: fewer invocations with more elements each for many rows."""
        each = 16 if self.count >= 1024 else 4
        wanted = 1 << max(5, (self.part // each - 1).bit_length())
        return min(WORKGROUP, wanted) if self.wide else WORKGROUP

    @property
    def workgroups(self) -> tuple[int, int, int]:
        """Return the grid."""
        return grid(self.count if self.wide else -(-self.count // self.lanes))

    @property
    def iterations(self) -> int:
        """Return the loop iterations of an invocation over its elements."""
        return -(-self.part // self.lanes) if self.wide else self.part

    @property
    def push(self) -> tuple[tuple[str, int], ...]:
        """Return the push constants of every kernel over rows."""
        return (("rows", self.count), ("columns", self.columns), ("inner", self.inner))


def rows_of(outer: int, columns: int, inner: int) -> Rows:
    """Choose a workgroup or an invocation for each row, so that neighbours read neighbours.

    Args:
        outer: the product of the axes before the rows.
        columns: the elements of a row.
        inner: the product of the axes after the rows.
    """
    few = columns <= 32
    many = inner >= 8 and outer * inner >= 16384
    large = inner >= 32 and outer * columns * inner >= 1 << 18
    return Rows(outer, columns, inner, wide=not (few or many or large))


def divide_rows(rows: Rows) -> Rows:
    """Cut rows into parts if they are too long, or too few to keep a GPU busy."""
    lanes = WORKGROUP if rows.wide else 1
    wanted = min(-(-BUSY // (rows.count * lanes)), rows.columns // (LEAST[rows.wide] * lanes))
    parts = max(1, wanted, -(-rows.columns // (MOST * lanes)))
    part = -(-rows.columns // parts)
    return Rows(rows.outer, rows.columns, rows.inner, rows.wide, -(-rows.columns // part))


def value_dtype(dtype: str) -> str:
    """Return the dtype that kernels compute in, wide enough for sums of parts."""
    names = {
        "int": "int32",
        "uint": "uint32",
        "bool": "uint32",
        "int64_t": "int64",
        "uint64_t": "uint64",
        "double": "float64",
    }
    return names.get(ELEMENTS[dtype].value, "float32")


@dataclass
class Work:
    """Collect dispatches and the temporary tensors between them."""

    dispatches: tuple[Dispatch, ...] = ()
    scratch: tuple[TensorInfo, ...] = ()

    def temporary(self, dtype: str, shape: Sequence[int]) -> TensorInfo:
        """Return a new temporary tensor."""
        info = output(dtype, shape)
        self.scratch += (info,)
        return info
