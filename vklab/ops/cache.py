"""Dispatch a cache of keys and values of bounded size: rows are written in place, read by length.

A cache is uint32 [batch, heads, context, words]: rows of float32, or of two float16 a word, that
end at 16 bytes. `lengths` [batch] counts the rows of earlier runs, `counts` [batch] the steps of
this run that are no padding. Visited by lab 19. Source: Dao et al., "Flash-Decoding", 2023.
"""

from __future__ import annotations

from typing import Any

from vklab.errors import ModelError
from vklab.ops.attention import Heads
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo

__all__ = ["FORMATS", "cache_attention", "cache_last", "cache_positions", "cache_update",
           "row_words"]  # fmt: skip

FORMATS = {"F16": 8, "F32": 4}  # elements in 16 bytes of a row
LANES, LANES_OF_KEY, TILE = 128, 4, 8  # invocations; of a key; the most queries of a workgroup
LEAST_KEYS, ENOUGH_GROUPS = 64, 256  # keys of a part; workgroups that fill a GPU
SHARED = 1024  # elements of queries for which shared memory has room


def row_words(size: int, kind: str) -> int:
    """Return the 32-bit words of a row of `size` elements; ModelError for an unknown format."""
    if kind not in FORMATS:
        raise ModelError(f"unknown format {kind!r} of a cache; choose {' or '.join(FORMATS)}")
    return -(-size // FORMATS[kind]) * 4


def _parts(
    cache: TensorInfo, size: int, counts: tuple[TensorInfo, TensorInfo],
    tables: tuple[TensorInfo | None, TensorInfo | None], turned: int, interleaved: int,
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Return buffers, push constants and defines that writers and readers of a cache share."""
    kinds = [kind for kind in FORMATS if cache.shape[-1] == row_words(size, kind)]
    if cache.dtype != "uint32" or cache.rank != 4 or not kinds:
        raise ModelError(f"{cache} is no cache of rows of {size} elements")
    for info in counts:
        if info.dtype != "int32" or info.dims != cache.dims[:1]:
            raise ModelError(f"{info} must be int32[{cache.dims[0]}], one number a sequence")
    turned = turned or size
    for table in filter(None, tables):
        if table.dtype != "float32" or table.dims[1:] != (turned // 2,) or turned % 2 or (
            turned > size or table.dims[0] < cache.dims[2]
        ):
            raise ModelError(f"{table} has no {turned} / 2 angles for {cache.dims[2]} rows")
    named = zip(("lengths_buffer", "counts_buffer", "cos_buffer", "sin_buffer"),
                (*counts, *tables), strict=True)  # fmt: skip
    return (
        tuple((name, info) for name, info in named if info is not None),
        (("heads", cache.dims[1]), ("size", size), ("context", cache.dims[2]),
         ("turned", turned), ("interleaved", interleaved)),
        (("FORMAT", kinds[0][1:]), ("ROTARY", str(int(None not in tables)))),
    )  # fmt: skip


@operator("CacheUpdate", domain="vklab")
def cache_update(
    cache: TensorInfo, X: TensorInfo, lengths: TensorInfo, counts: TensorInfo,
    cos: TensorInfo | None = None, sin: TensorInfo | None = None, *, size: int,
    interleaved: int = 0, turned: int = 0,
) -> Result:  # fmt: skip
    """Write new rows, rotated if there are tables, in place behind the valid ones. Source: own."""
    require(FLOATS, X)
    given, push, defines = _parts(cache, size, (lengths, counts), (cos, sin), turned, interleaved)
    batch, heads, _, words = cache.dims
    if X.rank != 3 or X.dims[0] != batch or X.dims[2] != heads * size:
        raise ModelError(f"{X} does not hold rows of {heads} heads of {size} for {cache}")
    result, count = output("uint32", cache.dims), batch * X.dims[1] * heads * words
    return Result((result,), (Dispatch(
        "cache_update", (("x_buffer", X), *given), (("y_buffer", result),),
        grid(-(-count // WORKGROUP)),
        (("count", count), ("steps", X.dims[1]), ("words", words), *push),
        (*type_defines("T", X.dtype)[:2], *defines),
    ),) if count else (), views=((0, 0),))  # fmt: skip


@operator("CacheAttention", domain="vklab")
def cache_attention(
    Q: TensorInfo, key: TensorInfo, value: TensorInfo, lengths: TensorInfo, counts: TensorInfo,
    cos: TensorInfo | None = None, sin: TensorInfo | None = None, *, num_heads: int,
    interleaved: int = 0, turned: int = 0,
) -> Result:  # fmt: skip
    """Let each step attend to the rows up to its own, which are in the cache. Source: own."""
    require(FLOATS, Q)
    q, result = Heads.of(Q, num_heads), output(Q.dtype, Q.dims)
    given, shared, defines = _parts(key, q.size, (lengths, counts), (cos, sin), turned, interleaved)
    batch, heads, context, words = key.dims
    fits = value.dims == key.dims and value.dtype == key.dtype and q.batch == batch
    if not fits or num_heads % heads or words > 4 * LANES:
        raise ModelError(f"{Q}, {key} and {value} do not fit")
    if not result.count:
        return Result((result,))
    queries = q.length * num_heads // heads
    tiles = -(-queries // min(TILE, max(1, SHARED // q.size)))
    tile, rows = -(-queries // tiles), batch * q.length * num_heads
    parts = max(1, min(-(-context // LEAST_KEYS), ENOUGH_GROUPS // (tiles * batch * heads)))
    sums = output("float32", (batch * heads, queries, parts, q.size))
    largest = output("float32", (batch * heads, queries, parts, 2))
    sizes = (("steps", q.length), ("group", num_heads // heads), *shared[:3], ("parts", parts),
             ("least", LEAST_KEYS))  # fmt: skip
    typed = type_defines("Y", Q.dtype)[::2]
    fold = max(LEAST_KEYS * LANES_OF_KEY * tile, LANES * 128 // int(dict(defines)["FORMAT"]))
    first = Dispatch(
        "cache_attention", (("q_buffer", Q), ("k_buffer", key), ("v_buffer", value), *given),
        (("sums_buffer", sums), ("heads_buffer", largest)) if parts > 1 else
        (("y_buffer", result),), (parts, tiles, batch * heads),
        (*sizes, *shared[3:], ("scale", q.size**-0.5)),
        (*type_defines("T", Q.dtype)[:2], *typed, *defines, ("PARTS", str(int(parts > 1)))),
        (("WORKGROUP", LANES), ("ROWS", tile), ("FOURS", words // 4), ("LANES", LANES_OF_KEY),
         ("FOLD", fold)), flops=4 * result.count * context, iterations=context,
    )  # fmt: skip
    second = Dispatch(
        "cache_combine", (("sums_buffer", sums), ("heads_buffer", largest), *given[:2]),
        (("y_buffer", result),), grid(rows), (("count", rows), *sizes, ("tile", tile)), typed,
        (("WORKGROUP", WORKGROUP), ("STREAMS", max(1, WORKGROUP // q.size)), ("PARTS", parts)),
        iterations=3 * parts, stores=True,
    )  # fmt: skip
    return Result((result,), (first, second)[: 1 + (parts > 1)], (sums, largest) * (parts > 1))


@operator("CachePositions", domain="vklab")
def cache_positions(tokens: TensorInfo, lengths: TensorInfo, *, context: int) -> Result:
    """Number the steps of each sequence from its length on, below `context`. Source: own."""
    if tokens.rank != 2 or lengths.dtype != "int32" or lengths.dims != tokens.dims[:1]:
        raise ModelError(f"{tokens} and {lengths} must be [batch, steps] and int32[batch]")
    result = output("int32", tokens.dims)
    return Result((result,), (Dispatch(
        "cache_positions", (("lengths_buffer", lengths),), (("y_buffer", result),),
        grid(-(-result.count // WORKGROUP)),
        (("count", result.count), ("steps", tokens.dims[1]), ("context", context)),
        type_defines("Y", "int32")[::2],
    ),) if result.count else ())  # fmt: skip


@operator("CacheLast", domain="vklab")
def cache_last(X: TensorInfo, counts: TensorInfo) -> Result:
    """Select each sequence's last step that is no padding, [batch, 1, size]. Source: own."""
    require(FLOATS, X)
    if X.rank != 3 or counts.dtype != "int32" or counts.dims != X.dims[:1]:
        raise ModelError(f"{X} and {counts} must be [batch, steps, size] and int32[batch]")
    result = output(X.dtype, (X.dims[0], 1, X.dims[2]))
    if X.dims[1] == 1:
        return view(X, X.dims)
    return Result((result,), (Dispatch(
        "cache_last", (("x_buffer", X), ("counts_buffer", counts)), (("y_buffer", result),),
        grid(-(-result.count // WORKGROUP)),
        (("count", result.count), ("steps", X.dims[1]), ("size", X.dims[2])),
        (*type_defines("X", X.dtype)[:2], *type_defines("Y", X.dtype)[::2]), stores=True,
    ),) if result.count else ())  # fmt: skip
