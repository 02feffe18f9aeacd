"""Dispatch rotary embeddings of ONNX, ONNX Runtime and vklab: pairs rotated by tabulated angles.

Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.attention import Heads
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.indexing import index_defines
from vklab.ops.inputs import require, same
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo


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
    """Rotate pairs of elements by their positions' angles. Source: ONNX RotaryEmbedding-23."""
    heads = Heads.of(X, num_heads)
    return Result(
        *rotary(heads, cos_cache, sin_cache, position_ids, interleaved, rotary_embedding_dim)
    )


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
    """Rotate pairs of elements by the angles of their positions. Source: ONNX Runtime."""
    if is_packed_batching or scale != 1.0:
        raise UnsupportedOperatorError(
            f"is_packed_batching={is_packed_batching}, scale={scale}; kernels take 0 and 1.0"
        )
    if input.rank == 3 and not num_heads:
        size = rotary_embedding_dim or 2 * cos_cache.dims[-1]
        num_heads = input.dims[2] // max(size, 1)
    heads = Heads.of(input, num_heads)
    return Result(
        *rotary(heads, cos_cache, sin_cache, position_ids, interleaved, rotary_embedding_dim)
    )


@operator("RotaryEmbedding", domain="vklab")
def whole_rotary_embedding(X: TensorInfo, cos: TensorInfo, sin: TensorInfo) -> Result:
    """Rotate halves of 4-D heads by tables [batch or 1, 1, step, element]. Source: own."""
    if X.rank != 4 or cos.rank != 4:
        raise ModelError(f"{X} and {cos} must have rank 4")
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
    """Rotate the queries of a row, and the keys that follow them, into 4-D heads. Source: own.

    A row of X [batch, step, element] may have more elements after the keys.
    """
    if X.rank != 3 or min(size, queries, keys) < 1 or (queries + keys) * size > X.dims[2]:
        raise ModelError(f"{X} does not hold {queries} + {keys} heads of {size}")
    _, length, width = X.dims
    heads = Heads(X, queries + keys, length, size, (length * width, size, width))
    return Result(
        *rotary(
            heads,
            cos,
            sin,
            position_ids,
            interleaved,
            rotary_embedding_dim,
            bool(whole),
            (queries, keys),
        )
    )


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
    """Return the rotated heads, in the layout of the given heads, and their dispatch.

    Args:
        heads: the heads; without `pair` they must fill their tensor.
        cos: the cosines, [position, angle] or [batch, step, angle].
        sin: the sines, of the same shape.
        positions: [batch, step] or [1]; None if the tables have an entry for each step.
        interleaved: pair neighbouring elements, not those half a head apart.
        turned: elements of a head that are rotated; 0 for all.
        whole: the tables have an angle for each element, not for each pair.
        pair: numbers of heads of queries and of keys; each becomes a dense result.
    """
    X = heads.info
    require(FLOATS, X, cos, sin)
    dtype, turned = same(X, cos, sin), turned or heads.size
    moments = (heads.batch, heads.length)
    width = turned if whole else turned // 2
    if turned > heads.size or turned % 2 or cos.dims != sin.dims or cos.dims[-1:] != (width,):
        raise ModelError(f"{cos} does not fit a rotation of {turned} of {heads.size} elements")
    of = cos.dims[:1] + cos.dims[2:3] if whole and cos.dims[1:2] == (1,) else cos.dims[:-1]
    if positions is None and of not in (moments, (1, heads.length)):
        raise ModelError(f"{cos} and {sin} do not fit the axes [batch, step] of {X}")
    if positions is not None and (positions.dims not in (moments, (1,)) or cos.rank != 2):
        raise ModelError(f"positions {positions} and tables {cos} do not fit {X}")
    parts = ((heads.batch, each, heads.length, heads.size) for each in pair)
    results = tuple(output(dtype, shape) for shape in (parts if pair else (X.dims,)))
    count = sum(result.count for result in results)
    if not count:
        return results, ()
    alone = positions is not None and positions.dims != moments
    mode = 0 if positions is None else 2 if alone else 1
    reads = [("x_buffer", X), ("cos_buffer", cos), ("sin_buffer", sin)]
    defines = [
        ("POSITIONS", str(mode)),
        ("WHOLE", str(int(whole))),
        ("PAIR", str(len(results) - 1)),
        *type_defines("T", dtype)[:2],
        *type_defines("Y", dtype)[::2],
    ]
    if positions is not None:
        reads.append(("positions_buffer", positions))
        defines += index_defines("I", positions.dtype)[:2]
    push = (
        ("count", count),
        ("steps", heads.length),
        ("heads", heads.count),
        ("places", heads.size),
        ("turned", turned),
        ("interleaved", int(bool(interleaved))),
        ("rows", cos.count // max(width, 1)),
        ("x_batch", heads.strides[0]),
        ("x_step", heads.strides[2]),
        ("x_head", heads.strides[1]),
        ("first", pair[0] if pair else heads.count),
    )
    writes = tuple(zip(("y_buffer", "z_buffer"), results, strict=False))
    dispatch = Dispatch(
        "rotary",
        tuple(reads),
        writes,
        grid(-(-count // WORKGROUP)),
        push,
        tuple(defines),
        flops=3 * count,
        stores=True,
    )
    return results, (dispatch,)
