"""Compressed weights of MIL: the constexpr operators, decompressed when a program is imported.

Each result is rounded once, to its declared type.

Source: the constexpr operators of MIL, iOS 16 and iOS 18
"""

from __future__ import annotations

import math

import numpy as np

from vklab.apps.compare.coreml import package
from vklab.apps.compare.coreml.emission import Emission, operator
from vklab.apps.compare.coreml.values import STORED
from vklab.errors import ModelError
from vklab.types import TensorInfo


def _values(op: Emission, info: TensorInfo) -> np.ndarray:
    if info.constant is None:
        raise op.refusal(f"its input {info.name!r} is no constant")
    return np.asarray(info.constant)


def _require(op: Emission, condition: bool, what: str) -> None:
    if not condition:
        raise ModelError(f"{op.title}: {what}")


@operator("constexpr_cast")
def constexpr_cast(op: Emission, source_val: TensorInfo, *, output_dtype: str) -> None:
    """Cast a constant."""
    _require(op, STORED.get(output_dtype) == op.y.dtype, f"dtype {output_dtype} for {op.y}")
    op.constant(_values(op, source_val).astype(op.y.dtype))


@operator("constexpr_affine_dequantize")
def constexpr_affine_dequantize(
    op: Emission,
    quantized_data: TensorInfo,
    zero_point: TensorInfo,
    scale: TensorInfo,
    *,
    axis: int,
) -> None:
    """Compute scale * (data - zero_point), with one scale or one for each index of an axis."""
    data = _values(op, quantized_data)
    _require(op, -data.ndim <= axis < data.ndim, f"axis {axis} of data of rank {data.ndim}")
    factors = []
    for info in (scale, zero_point):
        values = _values(op, info)
        _require(
            op,
            values.ndim == 0 or values.shape == (data.shape[axis],),
            f"{info.name!r} of shape {values.shape} for {data.shape[axis]} indices of axis {axis}",
        )
        shape = [1] * data.ndim
        shape[axis] = values.size
        factors.append(values.astype(np.float64).reshape(shape))
    op.constant((factors[0] * (data - factors[1])).astype(op.y.dtype))


@operator("constexpr_blockwise_shift_scale")
def constexpr_blockwise_shift_scale(
    op: Emission, data: TensorInfo, scale: TensorInfo, offset: TensorInfo | None = None
) -> None:
    """Compute scale * (data - offset), with one scale and one offset for each block."""
    values = _values(op, data).astype(np.float64)
    if offset is not None:
        values = values - _blocks(op, _values(op, offset), values.shape)
    op.constant((values * _blocks(op, _values(op, scale), values.shape)).astype(op.y.dtype))


def _blocks(op: Emission, factors: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return one factor for each element, from one for each block."""
    fits = factors.ndim == len(shape) and all(
        n and not size % n for size, n in zip(shape, factors.shape, strict=True)
    )
    _require(op, fits, f"data of shape {shape} is not divided into {factors.shape} blocks")
    for axis, size in enumerate(shape):
        factors = np.repeat(factors, size // factors.shape[axis], axis)
    return factors.astype(np.float64)


@operator("constexpr_lut_to_dense")
def constexpr_lut_to_dense(
    op: Emission,
    indices: TensorInfo,
    lut: TensorInfo,
    *,
    shape: tuple[int, ...] | None = None,
    vector_axis: int = 0,
) -> None:
    """Replace indices by entries of a table; with `shape`, as in iOS 16, they come as packed bits.

    A table of iOS 18 has a leading axis for each axis of the indices, for groups that have tables
    of their own, and entries may be vectors along an axis.
    """
    table, numbers = _values(op, lut), _values(op, indices)
    if shape is None:
        op.constant(_from_tables(op, numbers, table, vector_axis))
        return
    bits, count = max(table.size - 1, 1).bit_length(), math.prod(shape)
    _require(op, table.size == 1 << bits and bits <= 8, f"a table of {table.size} entries")
    _require(
        op,
        len(numbers) == -(-count * bits // 8),
        f"{count} indices of {bits} bits in {len(numbers)} bytes",
    )
    op.constant(table.reshape(-1)[package.unpack(numbers, bits, count)].reshape(shape))


def _from_tables(op: Emission, indices: np.ndarray, table: np.ndarray, axis: int) -> np.ndarray:
    rank = indices.ndim
    _require(op, table.ndim == rank + 2, f"a table of rank {table.ndim} for indices of rank {rank}")
    _require(op, -rank <= axis < rank, f"vector_axis {axis} of indices of rank {rank}")
    most = int(indices.max(initial=0))
    _require(op, most < table.shape[-2], f"index {most} in a table of {table.shape[-2]} entries")
    places = []
    for number, size in enumerate(indices.shape):
        groups = table.shape[number]
        _require(op, groups > 0 and size % groups == 0, f"{size} indices in {groups} groups")
        steps = np.arange(size) // max(size // groups, 1)
        places.append(steps.reshape([-1 if i == number else 1 for i in range(rank)]))
    vectors = table[(*places, indices)]
    axis %= rank
    result = np.moveaxis(vectors, -1, axis + 1)
    shape = list(indices.shape)
    shape[axis] *= table.shape[-1]
    return result.reshape(shape)


@operator("constexpr_sparse_to_dense")
def constexpr_sparse_to_dense(
    op: Emission,
    nonzero_data: TensorInfo,
    mask: TensorInfo,
    *,
    shape: tuple[int, ...] | None = None,
) -> None:
    """Spread values over the set bits of a mask; with `shape`, as in iOS 16, bits are packed."""
    bits, values = _values(op, mask), _values(op, nonzero_data).reshape(-1)
    if shape is not None:
        count = math.prod(shape)
        _require(op, len(bits) == -(-count // 8), f"{count} bits of a mask in {len(bits)} bytes")
        bits = np.unpackbits(bits, bitorder="little")[:count].reshape(shape)
    found = int(np.count_nonzero(bits))
    _require(op, found == values.size, f"{values.size} values for {found} set bits of the mask")
    dense = np.zeros(bits.shape, values.dtype)
    dense[bits != 0] = values
    op.constant(dense)
