"""Expand ONNX Runtime's attention operators into ONNX's Attention, with their masks and packings.

Source: ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Body, Expansion
from vklab.ops.inputs import known_integers
from vklab.ops.registry import operator
from vklab.types import TensorInfo

DOMAIN = "com.microsoft"
# The first opset with TensorScatter.
CACHE_OPSET = 24


def _integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _part(b: Body, x: Any, start: int, end: int, axis: int) -> str:
    return b("Slice", x, _integers(start), _integers(end), _integers(axis))


def _heads(b: Body, x: Any, shape: Sequence[int]) -> str:
    """Give [batch, step, heads * size] the shape [batch, heads, step, size]."""
    return b("Transpose", b("Reshape", x, _integers(*shape)), perm=(0, 2, 1, 3))


def _mask(
    b: Body, mask: TensorInfo | None, bias: Any, batch: int, keys: int, fill: float, dtype: str
) -> Any:
    """Return the bias of the scores: `fill` where the mask is 0, plus the given bias."""
    if mask is None:
        return bias
    if mask.dims == (batch,):  # the number of valid keys
        open_keys = b(
            "Less", np.arange(keys, dtype=np.int32)[None], b("Unsqueeze", mask, _integers(1))
        )
    elif mask.rank in (2, 3) and mask.dims[0] == batch and mask.dims[-1] == keys:
        open_keys = b("Greater", mask, np.zeros((), np.int32))
    else:
        raise UnsupportedOperatorError(f"mask {mask} does not fit {batch} batches and {keys} keys")
    axes = _integers(1) if mask.rank == 3 else _integers(1, 2)
    zero, filled = (np.array(value).astype(dtype) for value in (0, fill))
    closed = b("Where", b("Unsqueeze", open_keys, axes), zero, filled)
    return closed if bias is None else b("Add", closed, bias)


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    query: TensorInfo,
    key: TensorInfo | None = None,
    value: TensorInfo | None = None,
    bias: TensorInfo | None = None,
    key_padding_mask: TensorInfo | None = None,
    attention_bias: TensorInfo | None = None,
    past_key: TensorInfo | None = None,
    past_value: TensorInfo | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Expansion:
    """Compute attention of separate or packed heads. Source: ONNX Runtime."""
    b = Body()
    batch, steps = query.dims[:2]
    q: Any = query
    k: Any = key
    v: Any = value
    if query.rank == 5:  # [batch, step, head, 3, size]
        width, keys = query.dims[2] * query.dims[4], steps
        flat = _integers(batch, steps, width)
        q, k, v = (b("Reshape", _part(b, query, i, i + 1, 3), flat) for i in range(3))
        widths = [width] * 3
    elif key is not None and key.rank == 5 and value is None:
        keys, width = key.dims[1], query.dims[2]
        flat = _integers(batch, keys, width)
        k, v = (b("Reshape", _part(b, key, i, i + 1, 3), flat) for i in range(2))
        widths = [width] * 3
    elif key is not None and value is not None:
        keys = key.dims[2] if key.rank == 4 else key.dims[1]
        widths = [query.dims[2]]
        k, v = key, value
        for number, info in enumerate((key, value)):
            widths.append(info.dims[1] * info.dims[3] if info.rank == 4 else info.dims[2])
            if info.rank == 4:  # heads come first
                turned = b("Transpose", info, perm=(0, 2, 1, 3))
                flat_heads = b("Reshape", turned, _integers(batch, keys, widths[-1]))
                k, v = (flat_heads, v) if number == 0 else (k, flat_heads)
    else:
        raise UnsupportedOperatorError(f"no kernel for query {query}, key {key}, value {value}")
    if bias is not None:
        ends = np.cumsum([0, *widths])
        q, k, v = (
            b("Add", x, _part(b, bias, int(ends[i]), int(ends[i + 1]), 0))
            for i, x in enumerate((q, k, v))
        )
    past = past_key.dims[2] if past_key is not None else 0
    mask = _mask(
        b, key_padding_mask, attention_bias, batch, past + keys, mask_filter_value, query.dtype
    )
    return b.result(
        *b.many(
            "Attention",
            4,
            q,
            k,
            v,
            mask,
            past_key,
            past_value,
            q_num_heads=num_heads,
            kv_num_heads=num_heads,
            scale=scale or None,
            is_causal=int(bool(unidirectional)),
        )
    )


@operator("Attention", domain=DOMAIN)
def contrib_attention(
    input: TensorInfo,
    weights: TensorInfo,
    bias: TensorInfo | None = None,
    mask_index: TensorInfo | None = None,
    past: TensorInfo | None = None,
    attention_bias: TensorInfo | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Expansion:
    """Compute self-attention with its projections. Source: ONNX Runtime's Attention-1."""
    b = Body()
    batch, steps, _ = input.dims
    width = weights.dims[1] // 3
    ends = np.cumsum([0, *(qkv_hidden_sizes or (width, width, width))])
    if len(ends) != 4 or ends[-1] != weights.dims[1]:
        raise ModelError(f"qkv_hidden_sizes={qkv_hidden_sizes} does not fit weights {weights}")
    packed = b("MatMul", input, weights)
    packed = packed if bias is None else b("Add", packed, bias)
    q, k, v = (_part(b, packed, int(ends[i]), int(ends[i + 1]), 2) for i in range(3))
    earlier: list[Any] = [None, None]
    before = 0
    if past is not None:
        before = past.dims[3]
        earlier = [b("Squeeze", _part(b, past, i, i + 1, 0), _integers(0)) for i in range(2)]
    mask = _mask(
        b, mask_index, attention_bias, batch, before + steps, mask_filter_value, input.dtype
    )
    y, *present = b.many(
        "Attention",
        3,
        q,
        k,
        v,
        mask,
        *earlier,
        q_num_heads=num_heads,
        kv_num_heads=num_heads,
        scale=scale or None,
        is_causal=int(bool(unidirectional)),
    )
    if ends[3] - ends[2] != ends[2] - ends[1]:
        return b.result(y)
    both = b("Concat", *(b("Unsqueeze", p, _integers(0)) for p in present), axis=0)
    return b.result(y, both)


@operator("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(
    query: TensorInfo,
    key: TensorInfo | None,
    value: TensorInfo | None,
    past_key: TensorInfo | None,
    past_value: TensorInfo | None,
    seqlens_k: TensorInfo,
    total_sequence_length: TensorInfo,
    cos_cache: TensorInfo | None = None,
    sin_cache: TensorInfo | None = None,
    position_ids: TensorInfo | None = None,
    attention_bias: TensorInfo | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
) -> Expansion:
    """Compute attention over a cache of keys and values, whose heads several queries share.

    Source: Ainslie et al., "GQA", 2023; ONNX Runtime's GroupQueryAttention-1.
    """
    if smooth_softmax > 0:
        raise UnsupportedOperatorError(f"smooth_softmax={smooth_softmax} is not supported")
    b = Body()
    batch, steps, width = query.dims
    total = known_integers(total_sequence_length, "total_sequence_length")[0]
    given: tuple[Any, Any, Any] = (query, key, value)
    size = width // num_heads
    if key is None:
        size = width // (num_heads + 2 * kv_num_heads)
        ends = [0, num_heads * size, (num_heads + kv_num_heads) * size, width]
        given = tuple(_part(b, query, ends[i], ends[i + 1], 2) for i in range(3))  # type: ignore
    counts = (num_heads, kv_num_heads, kv_num_heads)
    q, k, v = (
        _heads(b, x, (batch, steps, count, size)) for x, count in zip(given, counts, strict=True)
    )
    # The first call fills the cache from its start; a later call appends at each batch's end.
    first = steps == total
    starts: Any = np.zeros(batch, np.int64)
    if not first:
        ended = b("Reshape", b("Cast", seqlens_k, to=7), _integers(batch))
        starts = b("Add", ended, np.array(1 - steps, np.int64))
    if do_rotary:
        positions = position_ids or b(
            "Add", b("Unsqueeze", starts, _integers(1)), np.arange(steps, dtype=np.int64)[None]
        )
        q, k = (
            b(
                "RotaryEmbedding",
                x,
                cos_cache,
                sin_cache,
                positions,
                interleaved=rotary_interleaved,
                rotary_embedding_dim=2 * cos_cache.dims[-1] if cos_cache else 0,
            )
            for x in (q, k)
        )
    present = [
        _cached(b, past, new, starts, total, (batch, kv_num_heads, size), query.dtype)
        for past, new in ((past_key, k), (past_value, v))
    ]
    lengths = b("Add", starts, np.array(steps, np.int64))
    y = b(
        "Attention",
        q,
        *present,
        attention_bias,
        None,
        None,
        lengths,
        is_causal=1,
        scale=scale or None,
        softcap=softcap,
        left_window_size=local_window_size - 1 if local_window_size > 0 else -1,
    )
    flat = b(
        "Reshape", b("Transpose", y, perm=(0, 2, 1, 3)), _integers(batch, steps, num_heads * size)
    )
    return replace(b.result(flat, *present), opset=CACHE_OPSET)


def _cached(
    b: Body,
    past: TensorInfo | None,
    new: str,
    starts: Any,
    total: int,
    shape: tuple[int, int, int],
    dtype: str,
) -> str:
    """Return a cache of at least `total` steps with the new steps written into it."""
    batch, heads, size = shape
    length = past.dims[2] if past is not None else 0
    cache: Any = past
    if length < total:
        room = np.zeros((batch, heads, total - length, size), dtype)
        cache = room if past is None or not length else b("Concat", past, room, axis=2)
    return b("TensorScatter", cache, new, starts, axis=2, mode="linear")
