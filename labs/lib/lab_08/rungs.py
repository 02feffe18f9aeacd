"""Rungs of the ladder of matrix products: tiles and paddings of the kernels in `shaders/labs`.

Visited by labs 08 and 08b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vklab.shader import source

__all__ = ["LADDER", "RUNTIME", "SIZES", "Rung", "kernel_text"]


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder.

    Attributes:
        tile: rows and columns of y of one workgroup.
        pad: multiples that the host pads rows, columns and depth to.
        half: whether a and b are halves.
        is_turned: whether workgroups along x go down the rows.
    """

    tile: tuple[int, int]
    pad: tuple[int, int, int] = (1, 1, 1)
    half: bool = False
    is_turned: bool = False

    def padded(self, rows: int, columns: int, depth: int) -> tuple[int, int, int]:
        """Return rows, columns and depth as they lie in memory.

        Args:
            rows: rows of a and y.
            columns: columns of b and y.
            depth: columns of a, rows of b.
        """
        by = self.pad
        return -(-rows // by[0]) * by[0], -(-columns // by[1]) * by[1], -(-depth // by[2]) * by[2]

    def groups(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the workgroups along x and y."""
        down, across = -(-rows // self.tile[0]), -(-columns // self.tile[1])
        return (down, across) if self.is_turned else (across, down)

    def operands(self, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
        """Return the buffers a and b of a product as the kernel wants them."""
        (rows, depth), columns = a.shape, b.shape[1]
        high, wide, deep = self.padded(rows, columns, depth)
        kind = np.float16 if self.half else np.float32
        return {
            "a": np.pad(a, ((0, high - rows), (0, deep - depth))).astype(kind).reshape(-1),
            "b": np.pad(
                b,
                ((0, 0), (0, wide - columns))
                if self.pad[0] == 1
                else ((0, deep - depth), (0, wide - columns)),
            )
            .astype(kind)
            .reshape(-1),
        }

    def push(self, rows: int, columns: int, depth: int) -> dict[str, int]:
        """Return the push constants: a kernel of halves is told the padded sizes.

        Args:
            rows: rows of a and y.
            columns: columns of b and y.
            depth: columns of a, rows of b.
        """
        sizes = self.padded(rows, columns, depth) if self.half else (rows, columns, depth)
        return dict(zip(("rows", "columns", "depth"), sizes, strict=True))


LADDER: Mapping[str, Rung] = {
    "naive": Rung((32, 8), is_turned=True),
    "coalesced": Rung((8, 32)),
    "shared": Rung((16, 16)),
    "registers": Rung((64, 64)),
    "vectors": Rung((64, 64), (1, 4, 4)),
    "buffered": Rung((64, 64), (1, 4, 4)),
    "matrix": Rung((64, 64), (64, 64, 16), half=True),
}
RUNTIME = "runtime"
SIZES = (512, 1024, 2048, 4096)  # sides of the recorded products


def kernel_text(name: str) -> str:
    """Return the text of a kernel of the ladder."""
    return source.find(f"labs/matmul_{name}").read_text("utf-8")
