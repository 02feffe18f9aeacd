"""RotaryEmbedding, of ONNX and as ONNX Runtime has it: pairs turned by angles from a table."""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.attention import Heads
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["contrib_rotary_embedding", "rotary", "rotary_embedding", "rotary_heads",
           "whole_rotary_embedding"]  # fmt: skip


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    X: TensorInfo,
    cos_cache: TensorInfo,
    sin_cache: TensorInfo,
    position_ids: TensorInfo | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Result:
    """Turn pairs of places by the angles of their positions. Source: ONNX RotaryEmbedding-23."""
    heads = Heads.of(X, num_heads)
    return Result(*rotary(heads, cos_cache, sin_cache, position_ids, interleaved,
                          rotary_embedding_dim))  # fmt: skip


@operator("RotaryEmbedding", domain="com.microsoft")
def contrib_rotary_embedding(
    input: TensorInfo,
    position_ids: TensorInfo,
    cos_cache: TensorInfo,
    sin_cache: TensorInfo,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Result:
    """Turn pairs of places by the angles of their positions. Source: ONNX Runtime."""
    if is_packed_batching or scale != 1.0:
        raise UnsupportedOperatorError(f"is_packed_batching={is_packed_batching}, scale={scale}")
    if input.rank == 3 and not num_heads:
        size = rotary_embedding_dim or 2 * cos_cache.dims[-1]
        num_heads = input.dims[2] // max(size, 1)
    heads = Heads.of(input, num_heads)
    return Result(*rotary(heads, cos_cache, sin_cache, position_ids, interleaved,
                          rotary_embedding_dim))  # fmt: skip


@operator("RotaryEmbedding", domain="vklab")
def whole_rotary_embedding(X: TensorInfo, cos: TensorInfo, sin: TensorInfo) -> Result:
    """Turn halves of 4-D heads by tables [batch or 1, 1, step, place]. Source: own."""
    if X.rank != 4 or cos.rank != 4:
        raise ModelError(f"{X} and {cos} are not of rank 4")
    return Result(*rotary(Heads.of(X), cos, sin, None, 0, whole=True))


@operator("RotaryHeads", domain="vklab")
def rotary_heads(
    X: TensorInfo,
    cos: TensorInfo,
    sin: TensorInfo,
    position_ids: TensorInfo | None = None,
    *,
    size: int,
    queries: int,
    keys: int,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    whole: int = 0,
) -> Result:
    """Turn queries, and keys behind them in the same rows, as RotaryEmbedding does. Source: own.

    A row of X [batch, step, place] may go on behind them. Both results are 4-D heads.
    """
    if X.rank != 3 or min(size, queries, keys) < 1 or (queries + keys) * size > X.dims[2]:
        raise ModelError(f"{X} does not hold {queries} + {keys} heads of {size}")
    _, length, width = X.dims
    heads = Heads(X, queries + keys, length, size, (length * width, size, width))
    return Result(*rotary(heads, cos, sin, position_ids, interleaved, rotary_embedding_dim,
                          bool(whole), (queries, keys)))  # fmt: skip


def rotary(
    heads: Heads,
    cos: TensorInfo,
    sin: TensorInfo,
    positions: TensorInfo | None,
    interleaved: int,
    turned: int = 0,
    whole: bool = False,
    pair: Sequence[int] = (),
) -> tuple[tuple[TensorInfo, ...], tuple[Dispatch, ...]]:
    """Return the turned heads, which lie as the given do, and their dispatch.

    Heads must fill their tensor; those of a `pair` need not, so many each become a dense result.
    Tables that are `whole` have an angle for each place, not pair.
    """
    X = heads.info
    require(FLOATS, X, cos, sin)
    dtype, turned = same(X, cos, sin), turned or heads.size
    moments = (heads.batch, heads.length)
    width = turned if whole else turned // 2
    if turned > heads.size or turned % 2 or cos.dims != sin.dims or cos.dims[-1:] != (width,):
        raise ModelError(f"{cos} does not turn {turned} of {heads.size} places")
    of = cos.dims[:1] + cos.dims[2:3] if whole and cos.dims[1:2] == (1,) else cos.dims[:-1]
    if positions is None and of not in (moments, (1, heads.length)):
        raise ModelError(f"{cos} and {sin} are not of [batch, step] of {X}")
    if positions is not None and (positions.dims not in (moments, (1,)) or cos.rank != 2):
        raise ModelError(f"{positions} are not the positions of {X}")
    parts = ((heads.batch, each, heads.length, heads.size) for each in pair)
    results = tuple(output(dtype, shape) for shape in (parts if pair else (X.dims,)))
    count = sum(result.count for result in results)
    if not count:
        return results, ()
    alone = positions is not None and positions.dims != moments
    mode = 0 if positions is None else 2 if alone else 1
    reads = [("x_buffer", X), ("cos_buffer", cos), ("sin_buffer", sin)]
    defines = [("POSITIONS", str(mode)), ("WHOLE", str(int(whole))),
               ("PAIR", str(len(results) - 1)),
               *type_defines("T", dtype)[:2], *type_defines("Y", dtype)[::2]]  # fmt: skip
    if positions is not None:
        reads.append(("positions_buffer", positions))
        defines += type_defines("I", positions.dtype)[:2]
    push = (
        ("count", count), ("steps", heads.length), ("heads", heads.count),
        ("places", heads.size), ("turned", turned), ("interleaved", int(bool(interleaved))),
        ("rows", cos.count // max(width, 1)), ("x_batch", heads.strides[0]),
        ("x_step", heads.strides[2]), ("x_head", heads.strides[1]),
        ("first", pair[0] if pair else heads.count),
    )  # fmt: skip
    writes = tuple(zip(("y_buffer", "z_buffer"), results, strict=False))
    dispatch = Dispatch("rotary", tuple(reads), writes, grid(-(-count // WORKGROUP)), push,
                        tuple(defines), flops=3 * count, stores=True)  # fmt: skip
    return results, (dispatch,)
