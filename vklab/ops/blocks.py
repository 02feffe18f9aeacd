"""Describe GGUF's block formats as data, and dispatch kernels that read weights in blocks.

A block is some neighbouring elements of a row with one scale. The kernels read raw bytes as 32-bit
words: `words`. Source: ggml's block structures, GGUF version 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vklab.errors import ModelError
from vklab.ops.dtypes import ELEMENT_TYPES, FLOATS, type_defines
from vklab.ops.indexing import INDICES, index_defines
from vklab.ops.inputs import require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

STEP, PART = 32, 8  # elements that share a scale, and that are dequantised at once
LANES, TILE, MOST_ROWS = 32, 32, 8  # invocations of a row, sides of a tile, rows of matvec_blocks
DTYPES = {number: name for name, number in ELEMENT_TYPES.items()}


@dataclass(frozen=True)
class BlockFormat:
    """One block format: its number in GGUF, the elements of a block, and its bytes as fields."""

    name: str
    number: int
    elements: int
    fields: np.dtype

    def row_bytes(self, elements: int) -> int:
        """Return the bytes of a row; ModelError unless the row has a whole number of blocks."""
        if elements < 0 or elements % self.elements:
            raise ModelError(
                f"a row of {elements} elements cannot be stored as {self.name}: its "
                f"blocks have {self.elements}"
            )
        return elements // self.elements * self.fields.itemsize


_D, _MIN, _HIGH, _NIBBLES = ("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)
_K, _KS = [_D, ("dmin", "<f2"), ("scales", "u1", 12)], ("qs", "u1", 128)
FORMATS = {
    name: BlockFormat(name, number, elements, np.dtype(fields))
    for name, number, elements, fields in (
        ("F32", 0, 1, [("x", "<f4")]),
        ("F16", 1, 1, [("x", "<f2")]),
        ("BF16", 30, 1, [("x", "<u2")]),
        ("Q8_0", 8, 32, [_D, ("qs", "i1", 32)]),
        ("Q4_0", 2, 32, [_D, _NIBBLES]),
        ("Q4_1", 3, 32, [_D, _MIN, _NIBBLES]),
        ("Q5_0", 6, 32, [_D, _HIGH, _NIBBLES]),
        ("Q5_1", 7, 32, [_D, _MIN, _HIGH, _NIBBLES]),
        ("Q4_K", 12, 256, [*_K, _KS]),
        ("Q5_K", 13, 256, [*_K, ("qh", "u1", 32), _KS]),
        ("Q6_K", 14, 256, [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), _D]),
    )
}


def block_format(name: str) -> BlockFormat:
    """Return a block format by name; ModelError with the known names for another."""
    if name not in FORMATS:
        raise ModelError(f"unknown block format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def words(data: np.ndarray) -> np.ndarray:
    """Return an array's bytes as 32-bit words; copy only bytes that do not fill the last word."""
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return (np.append(raw, np.zeros(-raw.size % 4, np.uint8)) if raw.size % 4 else raw).view("<u4")


@operator("MatMulBlocks", domain="vklab")
def matmul_blocks(A: TensorInfo, B: TensorInfo, *, block_type: str, N: int, K: int) -> Result:
    """Multiply A [..., K] by the transpose of N x K weights in blocks; A may be rounded."""
    require(FLOATS, A)
    weights, rows = _weights(B, block_type, N, K), math.prod(A.dims[:-1])
    if not A.rank or A.dims[-1] != K:
        raise ModelError(f"{A} must have rows of {K} elements, as B has")
    result, steps = output(A.dtype, (*A.dims[:-1], N)), -(-K // STEP)
    lanes, is_few = min(LANES, 1 << (steps - 1).bit_length()), rows <= MOST_ROWS
    groups = grid(-(-N * lanes // (4 * LANES))) if is_few else (-(-N // TILE), -(-rows // TILE), 1)
    few = (("LANES", lanes), ("ROWS", rows), ("WORKGROUP", 4 * LANES)) if is_few else ()
    weights += (("SHARED", "0"),) if is_few else ()
    return Result(
        (result,),
        (
            Dispatch(
                "matvec_blocks" if is_few else "matmul_blocks",
                (("a_buffer", A), ("b_buffer", B)),
                (("y_buffer", result),),
                groups,
                (("m", rows), ("n", N), ("k", K)),
                (*weights, *type_defines("T", A.dtype)[:2], *type_defines("Y", A.dtype)[::2]),
                few,
                flops=2 * rows * N * K,
                stores=True,
                rounds=True,
                iterations=steps // lanes + 8 * MOST_ROWS if is_few else 2 * K + 2 * TILE,
            ),
        )
        if rows
        else (),
    )


def _weights(B: TensorInfo, block_type: str, N: int, K: int) -> tuple[tuple[str, str], ...]:
    """Return the defines of a matrix's format; ModelError unless B holds N rows of K elements."""
    size = N * block_format(block_type).row_bytes(K)
    if B.dtype != "uint32" or min(N, K) < 1 or B.count != -(-size // 4) or N * K >= 1 << 32:
        raise ModelError(
            f"{B} does not hold {N} rows of {K} elements as {block_type}: {size} "
            "bytes in words of uint32, fewer than 2^32 elements"
        )
    return (("DEQUANTIZE", f"dequantize_{block_type}"), ("TAIL", str(int(K % STEP > 0))))


@operator("DequantizeBlocks", domain="vklab")
@operator("GatherBlocks", domain="vklab")
def gather_blocks(
    B: TensorInfo,
    indices: TensorInfo | None = None,
    *,
    block_type: str,
    N: int,
    K: int,
    to: int = ELEMENT_TYPES["float32"],
) -> Result:
    """Select rows of N x K weights in blocks, or all, as floats of ONNX's type `to`."""
    defines = (*_weights(B, block_type, N, K), ("INDICES", str(int(indices is not None))))
    result = output(DTYPES.get(to, ""), (*(indices.dims if indices is not None else (N,)), K))
    require(FLOATS, result)
    require(INDICES, indices)
    given = (("i_buffer", indices),) if indices is not None else ()
    kinds = index_defines("I", indices.dtype)[:2] if indices is not None else ()
    steps = result.count // K * -(-K // PART)
    return Result(
        (result,),
        (
            Dispatch(
                "gather_blocks",
                (("b_buffer", B), *given),
                (("y_buffer", result),),
                grid(-(-steps // WORKGROUP)),
                (("steps", steps), ("n", N), ("k", K), ("first", 0), ("bound", N)),
                (*defines, *kinds, *type_defines("Y", result.dtype)[::2]),
                stores=True,
            ),
        )
        if steps
        else (),
    )
