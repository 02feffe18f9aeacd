"""Dispatch a cache of keys and values of bounded size: rows are written in place, read by length.

A cache is uint32 [batch, heads, context, words]: rows of float32, or of two float16 a word, that
end at 16 bytes. `lengths` [batch] counts the rows of earlier runs, `counts` [batch] the new steps
of this run that are no padding; so no shape depends on either. Visited by lab 19.
Source: Dao et al., "Flash-Decoding for long-context inference", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from vklab.errors import ModelError
from vklab.ops.attention import Heads
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo

__all__ = ["FORMATS", "cache_attention", "cache_last", "cache_positions", "cache_update",
           "row_words"]  # fmt: skip

# Elements in 16 bytes of a row, by the format of a cache.
FORMATS = {"F16": 8, "F32": 4}
LANES, TILE, LANES_OF_KEY = 128, 8, 4  # invocations, and the most queries, of a workgroup
LEAST_KEYS, ENOUGH_GROUPS = 64, 256  # keys of a part; workgroups that fill a GPU


def row_words(size: int, kind: str) -> int:
    """Return the 32-bit words of a row; ModelError for an unknown format.

    Args:
        size: the elements of a head.
        kind: "F16" or "F32".
    """
    if kind not in FORMATS:
        raise ModelError(f"unknown format {kind!r} of a cache; choose {' or '.join(FORMATS)}")
    return -(-size // FORMATS[kind]) * 4


@dataclass(frozen=True)
class _Rows:
    """A cache's sizes, and the counts of the run that reads or writes it."""

    info: TensorInfo
    size: int
    kind: str

    @classmethod
    def of(cls, cache: TensorInfo, size: int, *counts: TensorInfo) -> _Rows:
        """Return the sizes; ModelError for a tensor that is no cache of rows of `size` elements."""
        kinds = [kind for kind in FORMATS if cache.shape[-1] == row_words(size, kind)]
        if cache.dtype != "uint32" or cache.rank != 4 or not kinds:
            raise ModelError(f"{cache} is no cache of rows of {size} elements")
        for info in counts:
            if info.dtype != "int32" or info.dims != cache.dims[:1]:
                raise ModelError(f"{info} must be int32[{cache.dims[0]}], one number a sequence")
        return cls(cache, size, kinds[0])

    @property
    def push(self) -> tuple[tuple[str, int], ...]:
        """Return the push constants that all kernels of a cache share."""
        return ("heads", self.info.dims[1]), ("size", self.size), ("context", self.info.dims[2])

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """Return the define of the cache's format."""
        return (("FORMAT", self.kind[1:]),)


def _rotary(
    tables: tuple[TensorInfo | None, TensorInfo | None], rows: _Rows, interleaved: int, turned: int
) -> tuple[tuple[tuple[str, TensorInfo], ...], tuple[tuple[str, int], ...], str]:
    """Return buffers, push constants and define of rotary embeddings, if there are tables."""
    cos, sin = tables
    if cos is None or sin is None:
        return (), (("turned", 0), ("interleaved", 0)), "0"
    turned = turned or rows.size
    if turned % 2 or turned > rows.size:
        raise ModelError(f"{turned} of {rows.size} elements cannot be rotated in pairs")
    for table in (cos, sin):
        if table.dtype != "float32" or table.rank != 2 or table.dims[1] != turned // 2 or (
            table.dims[0] < rows.info.dims[2]
        ):
            raise ModelError(f"{table} has no {turned // 2} angles for {rows.info.dims[2]} rows")
    push = (("turned", turned), ("interleaved", interleaved))
    return (("cos_buffer", cos), ("sin_buffer", sin)), push, "1"


@operator("CacheUpdate", domain="vklab")
def cache_update(
    cache: TensorInfo,
    X: TensorInfo,
    lengths: TensorInfo,
    counts: TensorInfo,
    cos: TensorInfo | None = None,
    sin: TensorInfo | None = None,
    *,
    size: int,
    interleaved: int = 0,
    turned: int = 0,
) -> Result:
    """Write new rows, rotated if there are tables, behind a cache's valid ones. Source: own.

    The result takes over the memory of `cache`, which no other node may read.
    """
    require(FLOATS, X)
    rows = _Rows.of(cache, size, lengths, counts)
    batch, heads, _, words = cache.dims
    if X.rank != 3 or X.dims[0] != batch or X.dims[2] != heads * size:
        raise ModelError(f"{X} does not hold rows of {heads} heads of {size} for {cache}")
    tables, turn, rotary = _rotary((cos, sin), rows, interleaved, turned)
    result, count = output("uint32", cache.dims), batch * X.dims[1] * heads * words
    dispatch = Dispatch(
        "cache_update",
        (("x_buffer", X), ("lengths_buffer", lengths), ("counts_buffer", counts), *tables),
        (("y_buffer", result),), grid(-(-count // WORKGROUP)),
        (("count", count), ("steps", X.dims[1]), ("words", words), *rows.push, *turn),
        (*type_defines("T", X.dtype)[:2], *rows.defines, ("ROTARY", rotary)),
    )  # fmt: skip
    return Result((result,), (dispatch,) if count else (), views=((0, 0),))


@operator("CacheAttention", domain="vklab")
def cache_attention(
    Q: TensorInfo,
    key: TensorInfo,
    value: TensorInfo,
    lengths: TensorInfo,
    counts: TensorInfo,
    cos: TensorInfo | None = None,
    sin: TensorInfo | None = None,
    *,
    num_heads: int,
    interleaved: int = 0,
    turned: int = 0,
    scale: float = 0.0,
) -> Result:
    """Let every step attend to a cache's rows up to its own. Source: own.

    The rows of the new steps are in the cache already. `scale` 0 means 1 / sqrt(size).
    """
    require(FLOATS, Q)
    q = Heads.of(Q, num_heads)
    rows = _Rows.of(key, q.size, lengths, counts)
    batch, heads, context, words = key.dims
    if value.dims != key.dims or value.dtype != key.dtype or q.batch != batch or num_heads % heads:
        raise ModelError(f"{Q}, {key} and {value} do not fit")
    tables, turn, rotary = _rotary((cos, sin), rows, interleaved, turned)
    result, group = output(Q.dtype, Q.dims), num_heads // heads
    queries = q.length * group
    if not result.count:
        return Result((result,))
    tiles = -(-queries // TILE)
    tile = -(-queries // tiles)
    parts = max(1, min(-(-context // LEAST_KEYS), ENOUGH_GROUPS // (tiles * batch * heads)))
    sums = output("float32", (batch * heads, queries, parts, q.size))
    largest = output("float32", (batch * heads, queries, parts, 2))
    counted = (("lengths_buffer", lengths), ("counts_buffer", counts))
    sizes = (("steps", q.length), ("group", group), *rows.push, ("parts", parts),
             ("least", LEAST_KEYS))
    typed = type_defines("Y", Q.dtype)[::2]
    lanes = min(LANES_OF_KEY, 1 << (words // 4).bit_length() - 1)
    first = Dispatch(
        "cache_attention", (("q_buffer", Q), ("k_buffer", key), ("v_buffer", value), *counted,
                            *tables),
        (("sums_buffer", sums), ("heads_buffer", largest)) if parts > 1 else
        (("y_buffer", result),), (parts, tiles, batch * heads),
        (*sizes, *turn, ("scale", scale or q.size**-0.5)),
        (*type_defines("T", Q.dtype)[:2], *typed, *rows.defines, ("ROTARY", rotary),
         ("PARTS", str(int(parts > 1)))),
        (("WORKGROUP", LANES), ("ROWS", tile), ("FOURS", words // 4), ("LANES", lanes)),
        flops=4 * result.count * context, iterations=context,
    )  # fmt: skip
    if parts == 1:
        return Result((result,), (first,))
    second = Dispatch(
        "cache_combine", (("sums_buffer", sums), ("heads_buffer", largest), *counted),
        (("y_buffer", result),), grid(-(-result.count // WORKGROUP)),
        (("count", result.count), *sizes, ("tile", tile)), typed,
        iterations=2 * parts, stores=True,
    )  # fmt: skip
    return Result((result,), (first, second), (sums, largest))


@operator("CachePositions", domain="vklab")
def cache_positions(tokens: TensorInfo, lengths: TensorInfo, *, context: int) -> Result:
    """Number the steps of each sequence from its length on, below `context`. Source: own."""
    if tokens.rank != 2 or lengths.dtype != "int32" or lengths.dims != tokens.dims[:1]:
        raise ModelError(f"{tokens} and {lengths} must be [batch, steps] and int32[batch]")
    result = output("int32", tokens.dims)
    push = (("count", result.count), ("steps", tokens.dims[1]), ("context", context))
    return Result((result,), (Dispatch("cache_positions", (("lengths_buffer", lengths),),
                                       (("y_buffer", result),),
                                       grid(-(-result.count // WORKGROUP)), push),)
                  if result.count else ())  # fmt: skip


@operator("CacheLast", domain="vklab")
def cache_last(X: TensorInfo, counts: TensorInfo) -> Result:
    """Select each sequence's last step that is no padding, [batch, 1, size]. Source: own."""
    require(FLOATS, X)
    if X.rank != 3 or counts.dtype != "int32" or counts.dims != X.dims[:1]:
        raise ModelError(f"{X} and {counts} must be [batch, steps, size] and int32[batch]")
    batch, steps, size = X.dims
    if steps == 1:
        return view(X, X.dims)
    result = output(X.dtype, (batch, 1, size))
    typed = (*type_defines("X", X.dtype)[:2], *type_defines("Y", X.dtype)[::2])
    return Result((result,), (Dispatch(
        "cache_last", (("x_buffer", X), ("counts_buffer", counts)), (("y_buffer", result),),
        grid(-(-result.count // WORKGROUP)),
        (("count", result.count), ("steps", steps), ("size", size)), typed, stores=True,
    ),) if result.count else ())  # fmt: skip
