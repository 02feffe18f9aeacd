"""Dispatch attention: two matrix products that read heads by strides, and a masked softmax.

No operand is transposed or repeated: a head of [batch, length, heads * size] is a stride, and so
is a head of keys that several heads of queries share.
Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.elementwise import broadcast_strides, move
from vklab.ops.indexing import index_defines
from vklab.ops.inputs import require, same
from vklab.ops.linear import product
from vklab.ops.registry import Result, operator, output
from vklab.ops.rows import rows_of
from vklab.types import Dispatch, TensorInfo, dense_strides

Strides = tuple[int, int, int]


@dataclass(frozen=True)
class Heads:
    """Describe queries, keys or values as [batch, count, length, size] of a tensor, by strides.

    `strides` are the strides of batch, head and row in elements; a row is dense.
    """

    info: TensorInfo
    count: int
    length: int
    size: int
    strides: Strides

    @classmethod
    def of(cls, info: TensorInfo, count: int = 0) -> Heads:
        """Return the heads of [batch, heads, length, size] or [batch, length, count * size]."""
        if info.rank == 4:
            _, heads, length, size = info.dims
            return cls(info, heads, length, size, (heads * length * size, length * size, size))
        if info.rank != 3 or count < 1 or info.dims[2] % count:
            raise ModelError(f"{info} does not hold {count} heads of equal size")
        _, length, width = info.dims
        return cls(info, count, length, width // count, (length * width, width // count, width))

    def empty(self) -> TensorInfo:
        """Return the description of a dense tensor that holds only these heads."""
        return output(self.info.dtype, (self.batch, self.count, self.length, self.size))

    @property
    def batch(self) -> int:
        """Return the number of batches."""
        return self.info.dims[0]


@dataclass
class Attending:
    """Collect the dispatches of one attention, and their scratch tensors."""

    dispatches: list[Dispatch] = field(default_factory=list)
    scratch: list[TensorInfo] = field(default_factory=list)

    def make(self, dtype: str, shape: Sequence[int]) -> TensorInfo:
        """Return a new scratch tensor."""
        self.scratch.append(output(dtype, shape))
        return self.scratch[-1]

    def place(self, heads: Heads, target: TensorInfo, row: int = 0) -> None:
        """Copy heads into [batch, heads, length, size], starting at a row.

        Args:
            heads: the heads to copy.
            target: the tensor that is written.
            row: the first row of each head that is written.
        """
        shape = (heads.batch, heads.count, heads.length, heads.size)
        dense = dense_strides(target.dims)
        if math.prod(shape):
            self.dispatches += move(
                heads.info, (*heads.strides, 1), target, place=(shape, dense, row * heads.size)
            )

    def joined(self, past: TensorInfo, heads: Heads) -> Heads:
        """Return past heads followed by new heads, in a new tensor."""
        batch, count, length, size = past.dims
        if past.rank != 4 or (batch, count, size) != (heads.batch, heads.count, heads.size):
            raise ModelError(f"past {past} and new {heads.info} differ in batches, heads or size")
        present = output(past.dtype, (batch, count, length + heads.length, size))
        self.place(Heads.of(past), present)
        self.place(heads, present, length)
        return Heads.of(present)

    def scores(self, q: Heads, k: Heads, scale: float) -> TensorInfo:
        """Return scale * Q K' of every head, [batch, heads, queries, keys]; not in scratch yet.

        Args:
            q: the heads of the queries.
            k: the heads of the keys; each serves q.count / k.count heads of queries.
            scale: the factor of every score.
        """
        if q.size != k.size or q.batch != k.batch or k.count == 0 or q.count % k.count:
            raise ModelError(f"heads of {q.info} do not fit those of {k.info}")
        result = output(same(q.info, k.info), (q.batch, q.count, q.length, k.length))
        group = q.count // k.count
        self.dispatches += product(
            q.info,
            k.info,
            None,
            result,
            (q.length, k.length, q.size),
            (q.strides[2], 1),
            (1, k.strides[2]),
            (q.batch, k.count, group),
            [(q.strides[0], group * q.strides[1], q.strides[1]), (*k.strides[:2], 0)],
            scale,
        )
        return result

    def weights(
        self,
        scores: TensorInfo,
        mask: TensorInfo | None = None,
        lengths: TensorInfo | None = None,
        past: int = 0,
        window: tuple[int, int] = (-1, -1),
        cap: float = 0.0,
        capture: int = 0,
        empty: int = 0,
        fill: float = -math.inf,
    ) -> tuple[TensorInfo, TensorInfo]:
        """Return the softmax of masked scores, and the captured scores; neither in scratch yet.

        Args:
            scores: [batch, heads, queries, keys].
            mask: a bool mask, or a bias to add; broadcast to the scores. None for no mask.
            lengths: [batch], numbers of valid keys; the last query is aligned with the last key.
            past: the key aligned with the first query, where `lengths` is None.
            window: the keys visible before and after the aligned key; below 0 means all.
            cap: the softcap c of c * tanh(score / c); 0 for none.
            capture: 0 captures nothing, 1 the capped scores, 2 the biased scores.
            empty: the result for a row without visible keys: 0 as ONNX's Attention, 1 as Softmax,
                2 as Softmax with 0 for NaN. With 1 and 2 a bool mask writes `fill`.
            fill: the score of a key that a bool mask excludes, with `empty` 1 or 2.
        """
        result, captured = (output(scores.dtype, scores.dims) for _ in range(2))
        _, heads, queries, columns = scores.dims
        steps, mask_columns = (0, 0, 0, 0), columns
        reads, writes = [("x_buffer", scores)], [("y_buffer", result)]
        defines = [*type_defines("X", scores.dtype)[:2], *type_defines("Y", scores.dtype)[::2]]
        if mask is not None:
            steps, mask_columns = _mask_steps(mask, scores.dims)
            reads.append(("mask_buffer", mask))
            defines += type_defines("M", mask.dtype)[:2]
        limited = lengths is not None or window != (-1, -1) or mask_columns < columns
        layout = rows_of(math.prod(scores.dims[:3]), columns, 1)
        flags = {
            "MASK": 0 if mask is None else 1 if mask.dtype == "bool" else 2,
            "LENGTHS": lengths is not None,
            "WINDOW": limited,
            "CAPTURE": capture,
            "CAPPED": cap > 0,
            "EMPTY": empty,
            "WIDE": layout.wide,
        }
        if lengths is not None:
            reads.append(("lengths_buffer", lengths))
            defines += index_defines("I", lengths.dtype)[:2]
        if capture:
            writes.append(("capture_buffer", captured))
        push = (
            ("rows", layout.count),
            ("columns", columns),
            ("queries", queries),
            ("heads", heads),
            *zip(("mask_batch", "mask_head", "mask_row", "mask_column"), steps, strict=True),
            ("mask_columns", mask_columns),
            ("past", past),
            ("left", window[0]),
            ("right", window[1]),
            ("cap", cap),
            ("fill", fill),
        )
        if scores.count:
            self.dispatches.append(
                Dispatch(
                    "attention_weights",
                    tuple(reads),
                    tuple(writes),
                    layout.workgroups,
                    push,
                    (*((name, str(int(flag))) for name, flag in flags.items()), *defines),
                    (("WORKGROUP", layout.lanes),),
                    flops=5 * scores.count,
                    iterations=3 * layout.iterations,
                    stores=True,
                    loads=True,
                )
            )
        return result, captured

    def values(self, weights: TensorInfo, v: Heads, flat: bool) -> TensorInfo:
        """Return the weighted sums of values.

        Args:
            weights: [batch, heads, queries, keys].
            v: the heads of the values.
            flat: True for [batch, queries, heads * size], False for [batch, heads, queries, size].
        """
        batch, count, queries, keys = weights.dims
        if (v.batch, v.length) != (batch, keys) or count % v.count:
            raise ModelError(f"heads of {v.info} do not fit {keys} keys of {batch} batches")
        shape = (batch, count, queries, v.size)
        wide = (batch, queries, count * v.size)
        dense = flat and 1 in (count, queries)  # both layouts are then the same
        result = output(same(weights, v.info), wide if dense else shape)
        group = count // v.count
        self.dispatches += product(
            weights,
            v.info,
            None,
            result,
            (queries, v.size, keys),
            (keys, 1),
            (v.strides[2], 1),
            (batch, v.count, group),
            [(count * queries * keys, group * queries * keys, queries * keys), (*v.strides[:2], 0)],
        )
        if dense or not flat:
            return result
        self.scratch.append(result)
        turned = output(result.dtype, wide)
        step = dense_strides(shape)
        strides = (step[0], step[2], step[1], 1)
        inner = (batch, queries, count, v.size)
        if result.count:
            place = (inner, dense_strides(inner), 0)
            self.dispatches += move(result, strides, turned, place=place)
        return turned


def _mask_steps(mask: TensorInfo, target: tuple[int, ...]) -> tuple[tuple[int, int, int, int], int]:
    """Return a mask's strides along batch, head, query and key, and its number of keys."""
    if mask.dtype != "bool":
        require(FLOATS, mask)
    *outer, columns = mask.dims or (1,)
    if len(outer) > 3 or columns > target[3]:
        raise ModelError(f"{mask} does not mask scores of shape {target}")
    # One key broadcasts; with fewer keys than scores, the remaining keys are excluded.
    shape = target if columns == 1 else (*target[:3], columns)
    steps = broadcast_strides((*outer, columns), shape)
    for dim, most in zip(outer, target[3 - len(outer) : 3], strict=True):
        if dim not in (1, most):
            raise ModelError(f"{mask} does not mask scores of shape {target}")
    return (steps[0], steps[1], steps[2], steps[3]), target[3] if columns == 1 else columns


@operator("Attention", since=23)
def attention(
    Q: TensorInfo,
    K: TensorInfo,
    V: TensorInfo,
    attn_mask: TensorInfo | None = None,
    past_key: TensorInfo | None = None,
    past_value: TensorInfo | None = None,
    nonpad_kv_seqlen: TensorInfo | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Result:
    """Compute softmax(scale * Q K' + mask) V of every head. Source: ONNX Attention-25."""
    require(FLOATS, Q, K, V)
    if (past_key is None) != (past_value is None) or (past_key and nonpad_kv_seqlen):
        raise ModelError("give past_key and past_value together, without nonpad_kv_seqlen")
    if qk_matmul_output_mode not in range(4):
        raise ModelError(f"qk_matmul_output_mode={qk_matmul_output_mode}; choose 0 to 3")
    work = Attending()
    q = Heads.of(Q, q_num_heads)
    k, v = Heads.of(K, kv_num_heads), Heads.of(V, kv_num_heads)
    views: tuple[tuple[int, int], ...] = ()
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.dims[2]
        k, v = work.joined(past_key, k), work.joined(past_value, v)
        present = (k.info, v.info)
    else:
        present = (k.empty(), v.empty())
        if K.rank == 4:
            views = ((1, 1), (2, 2))
        else:
            for heads, target in zip((k, v), present, strict=True):
                work.place(heads, target)
    scores = work.scores(q, k, q.size**-0.5 if scale is None else scale)
    window = (left_window_size, 0 if is_causal else right_window_size)
    capture = qk_matmul_output_mode if qk_matmul_output_mode in (1, 2) else 0
    weights, captured = work.weights(
        scores, attn_mask, nonpad_kv_seqlen, past, window, softcap, capture
    )
    shown = {0: scores, 3: weights}.get(qk_matmul_output_mode, captured)
    work.scratch += [info for info in (scores, weights) if info is not shown]
    result = work.values(weights, v, flat=Q.rank == 3)
    return Result((result, *present, shown), tuple(work.dispatches), tuple(work.scratch), views)


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    Q: TensorInfo,
    K: TensorInfo,
    V: TensorInfo,
    *,
    scale: float | None = None,
    softmax_precision: int = 0,
) -> Result:
    """Compute softmax(scale * Q K') V of every head. Source: ONNX FlexAttention-1."""
    require(FLOATS, Q, K, V)
    if Q.rank != 4:
        raise UnsupportedOperatorError(f"{Q} has rank {Q.rank}; it must be 4")
    work = Attending()
    scores = work.scores(Heads.of(Q), Heads.of(K), Q.dims[3] ** -0.5 if scale is None else scale)
    weights, _ = work.weights(scores)
    work.scratch += [scores, weights]
    result = work.values(weights, Heads.of(V), flat=False)
    return Result((result,), tuple(work.dispatches), tuple(work.scratch))
