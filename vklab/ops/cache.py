"""Dispatch a cache of keys and values of bounded size: rows are written in place, read by length.

A cache is uint32 [batch, heads, context, words]: rows of float32 or float16 that end at 16 bytes,
or int8 (Q8_0) with the scales of 32 elements each, float16, behind all rows. `lengths` [batch]
counts the rows of earlier runs, `counts` [batch] the steps of this run that are no padding.
Source: Dao et al., "Flash-Decoding", 2023; ggml's Q8_0.
"""

from __future__ import annotations

from typing import Any

from vklab.errors import ModelError
from vklab.ops.attention import Heads
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require
from vklab.ops.registry import WORKGROUP, Answer, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo

FORMATS = {"F16": 8, "F32": 4, "Q8_0": 16}  # elements in 16 bytes of a row
BLOCK = 32  # elements of Q8_0 that share a scale
LANES, LANES_OF_KEY, TILE, FEW = 128, 4, 8, 2  # FEW: the most queries of one step in a workgroup
KEYS, LEAST_KEYS, ENOUGH_GROUPS = 64, 64, 256  # of a tile, of a part; workgroups that fill a GPU
SHARED, MOST_NEW = 1024, 512  # elements of queries, of a new row, that fit in shared memory


def row_words(size: int, kind: str) -> int:
    """Return the 32-bit words of a row of `size` elements; ModelError if there are none."""
    if kind not in FORMATS:
        raise ModelError(f"unknown format {kind!r} of a cache; choose {', '.join(FORMATS)}")
    if kind == "Q8_0" and size % BLOCK:
        raise ModelError(
            f"a cache of Q8_0 holds heads of whole blocks of {BLOCK} elements, not "
            f"of {size}; choose F16 or F32"
        )
    scales = -(-size // (2 * BLOCK))
    return size // 4 + scales if kind == "Q8_0" else -(-size // FORMATS[kind]) * 4


def _parts(
    cache: TensorInfo, size: int, counts: tuple[TensorInfo, TensorInfo],
    tables: tuple[TensorInfo | None, TensorInfo | None], turned: int, interleaved: int,
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Return buffers, push constants and defines that writers and readers of a cache share."""
    kinds = [
        kind
        for kind in FORMATS
        if (kind != "Q8_0" or size % BLOCK == 0) and cache.shape[-1] == row_words(size, kind)
    ]
    if cache.dtype != "uint32" or cache.rank != 4 or not kinds:
        raise ModelError(f"{cache} is no cache of rows of {size} elements")
    for info in counts:
        if info.dtype != "int32" or info.dims != cache.dims[:1]:
            raise ModelError(f"{info} must be int32[{cache.dims[0]}], one number a sequence")
    turned = turned or size
    for table in filter(None, tables):
        if (
            table.dtype != "float32"
            or table.dims[1:] != (turned // 2,)
            or turned % 2
            or (turned > size or table.dims[0] < cache.dims[2])
        ):
            raise ModelError(f"{table} has no {turned} / 2 angles for {cache.dims[2]} rows")
    names = ("lengths_buffer", "counts_buffer", "cos_buffer", "sin_buffer")
    named = zip(names, (*counts, *tables), strict=True)
    push = (
        ("heads", cache.dims[1]),
        ("size", size),
        ("context", cache.dims[2]),
        ("turned", turned),
        ("interleaved", interleaved),
        ("cached", cache.count // max(cache.dims[3], 1)),
    )
    return (
        tuple((name, info) for name, info in named if info is not None),
        push,
        (("FORMAT", str(128 // FORMATS[kinds[0]])), ("ROTARY", str(int(None not in tables)))),
    )


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
    if dict(defines)["FORMAT"] == "8":  # whole pairs of blocks
        words = -(-size // (2 * BLOCK)) * 16
    if X.rank != 3 or X.dims[0] != batch or X.dims[2] != heads * size:
        raise ModelError(f"{X} does not hold rows of {heads} heads of {size} for {cache}")
    result, count = output("uint32", cache.dims), batch * X.dims[1] * heads * words
    sizes = (("count", count), ("steps", X.dims[1]), ("words", words), *push)
    return Result(
        (result,),
        (
            Dispatch(
                "cache_update",
                (("x_buffer", X), *given),
                (("y_buffer", result),),
                grid(-(-count // WORKGROUP)),
                sizes,
                (*type_defines("T", X.dtype)[:2], *defines),
            ),
        )
        if count
        else (),
        views=((0, 0),),
    )


@operator("CacheAttention", domain="vklab")
def cache_attention(
    Q: TensorInfo, key: TensorInfo, value: TensorInfo, lengths: TensorInfo, counts: TensorInfo,
    cos: TensorInfo | None = None, sin: TensorInfo | None = None, new_key: TensorInfo | None = None,
    new_value: TensorInfo | None = None, counters: TensorInfo | None = None, *, num_heads: int,
    interleaved: int = 0, turned: int = 0,
) -> Result:  # fmt: skip
    """Attend to the rows up to each step's own, after writing those that are given. Source: own."""
    require(FLOATS, Q)
    q, result = Heads.of(Q, num_heads), output(Q.dtype, Q.dims)
    given, shared, defines = _parts(key, q.size, (lengths, counts), (cos, sin), turned, interleaved)
    batch, heads, context, words = key.dims
    fits = value.dims == key.dims and value.dtype == key.dtype and q.batch == batch
    short = counters is not None and counters.count < ENOUGH_GROUPS
    if not fits or short or num_heads % heads or words > 4 * LANES or q.size > 8 * LANES:
        raise ModelError(f"{Q}, {key} and {value} do not fit")
    updates: list[Any] = []
    caches: Any = [("k_buffer", key), ("v_buffer", value)]
    if new_key is not None and new_value is not None:
        turn = {"size": q.size, "interleaved": interleaved, "turned": turned}
        updates = [
            cache_update(key, new_key, lengths, counts, cos, sin, **turn),
            cache_update(value, new_value, lengths, counts, size=q.size),
        ]
        caches = [("k_buffer", updates[0].outputs[0]), ("v_buffer", updates[1].outputs[0])]
    zeros = [] if counters is None else [output(counters.dtype, counters.dims)]
    outputs = (result, *(each.outputs[0] for each in updates), *zeros)
    views = (*[(1, 1), (2, 2)][: len(updates)], *((len(outputs) - 1, 9) for _ in zeros))
    if not result.count:
        return Result(outputs, views=views)
    new: Any = [("key_buffer", new_key), ("value_buffer", new_value)]
    appends = bool(updates) and q.length == 1 and q.size <= MOST_NEW  # attention writes the row
    queries, most = q.length * num_heads // heads, TILE if q.length > 1 else FEW
    tiles = -(-queries // min(most, max(1, SHARED // q.size)))
    tile, rows = -(-queries // tiles), batch * q.length * num_heads
    parts = max(1, min(-(-context // LEAST_KEYS), ENOUGH_GROUPS // (tiles * batch * heads)))
    counts_parts = bool(zeros) and parts > 1 and q.size <= MOST_NEW  # in one dispatch, not in two
    four, folds = 128 // int(dict(defines)["FORMAT"]), 1 + (q.size <= SHARED // 8 and tile > 1)
    width = -(-q.size // four) * four if counts_parts else q.size
    sums = output("float32", (batch * heads, queries, parts, width))
    largest = output("float32", (batch * heads, queries, parts, 2))
    sizes = (
        ("steps", q.length),
        ("group", num_heads // heads),
        *shared[:3],
        ("parts", parts),
        ("least", LEAST_KEYS),
    )
    typed = type_defines("Y", Q.dtype)[::2]
    part: Any = [("sums_buffer", sums), ("heads_buffer", largest)] * (parts > 1)
    done: Any = [("counters_buffer", each) for each in zeros if counts_parts]
    first = Dispatch(
        "cache_attention",
        (("q_buffer", Q), *(new if appends else caches), *given),
        (*part, *done, *([("y_buffer", result)] * (counts_parts or parts == 1)), *caches * appends),
        (parts, tiles, batch * heads),
        (*sizes, ("tiles", tiles), *shared[3:], ("scale", q.size**-0.5)),
        (
            *type_defines("T", Q.dtype)[:2],
            *typed,
            *defines,
            ("APPENDS", str(int(appends))),
            ("PARTS", str((parts > 1) * (1 + counts_parts))),
        ),
        (
            ("WORKGROUP", LANES),
            ("ROWS", tile),
            ("FOURS", -(-q.size // four)),
            ("LANES", LANES_OF_KEY),
            ("KEYS", KEYS),
            ("FOLD", max(KEYS * LANES_OF_KEY * tile, LANES * min(8, four) * folds)),
        ),
        flops=4 * result.count * context,
        iterations=context,
    )
    second = Dispatch(
        "cache_combine",
        (*part, *given[:2]),
        (("y_buffer", result),),
        grid(rows),
        (("count", rows), *sizes, ("tile", tile)),
        typed,
        (("WORKGROUP", WORKGROUP), ("STREAMS", max(1, WORKGROUP // q.size)), ("PARTS", parts)),
        iterations=3 * parts,
        stores=True,
    )
    before = () if appends else (dispatch for each in updates for dispatch in each.dispatches)
    return Result(
        outputs,
        (*before, first, *(second,) * (parts > 1 and not counts_parts)),
        (sums, largest) * (parts > 1),
        views,
    )


@operator("CacheCounters", domain="vklab")
def cache_counters(lengths: TensorInfo) -> Answer:
    """Return zeros, enough for an attention to count the parts of each tile. Source: own."""
    zeros = output("int32", (lengths.dims[0], ENOUGH_GROUPS))
    return cache_positions(zeros, lengths, context=1)


@operator("CachePositions", domain="vklab")
def cache_positions(tokens: TensorInfo, lengths: TensorInfo, *, context: int) -> Result:
    """Number the steps of each sequence from its length on, below `context`. Source: own."""
    if tokens.rank != 2 or lengths.dtype != "int32" or lengths.dims != tokens.dims[:1]:
        raise ModelError(f"{tokens} and {lengths} must be [batch, steps] and int32[batch]")
    result = output("int32", tokens.dims)
    push = (("count", result.count), ("steps", tokens.dims[1]), ("context", context))
    return Result(
        (result,),
        (
            Dispatch(
                "cache_positions",
                (("lengths_buffer", lengths),),
                (("y_buffer", result),),
                grid(-(-result.count // WORKGROUP)),
                push,
                type_defines("Y", "int32")[::2],
            ),
        )
        if result.count
        else (),
    )


@operator("CacheLast", domain="vklab")
def cache_last(X: TensorInfo, counts: TensorInfo) -> Result:
    """Select each sequence's last step that is no padding, [batch, 1, size]. Source: own."""
    require(FLOATS, X)
    if X.rank != 3 or counts.dtype != "int32" or counts.dims != X.dims[:1]:
        raise ModelError(f"{X} and {counts} must be [batch, steps, size] and int32[batch]")
    if X.dims[1] == 1:
        return view(X, X.dims)
    result = output(X.dtype, (X.dims[0], 1, X.dims[2]))
    push = (("count", result.count), ("steps", X.dims[1]), ("size", X.dims[2]))
    typed = (*type_defines("X", X.dtype)[:2], *type_defines("Y", X.dtype)[::2])
    return Result(
        (result,),
        (
            Dispatch(
                "cache_last",
                (("x_buffer", X), ("counts_buffer", counts)),
                (("y_buffer", result),),
                grid(-(-result.count // WORKGROUP)),
                push,
                typed,
                stores=True,
            ),
        )
        if result.count
        else (),
    )
