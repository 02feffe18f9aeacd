"""join_attention: compute scores, weights and weighted values of attention by one kernel.

Scores then need no memory. Few queries stay three dispatches, whose products divide the keys among
more workgroups. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vklab.ops import elementwise
from vklab.plan.fusion import operands, views
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch, StridedView, dense_strides

# Rows of queries of a workgroup, and keys of a step, that divide the shared memory; best first.
TILES = ((32, 32), (32, 16), (16, 32), (16, 16), (16, 8))
FEWEST_QUERIES = 16
# Invocations of a workgroup for each of its queries.
LANES = 4
MOST_AXES = 3
MOST_GROUPS = 65535
# Columns of values that the invocations of a row keep in registers.
MOST_VALUES = 256
MASK_NUMBERS = frozenset({"mask_batch", "mask_head", "mask_row", "mask_column", "mask_columns",
                          "past", "left", "right", "cap", "fill"})  # fmt: skip
MASK_DEFINES = frozenset({"MASK", "LENGTHS", "WINDOW", "CAPPED", "EMPTY", "M", "M_LOAD", "I",
                          "I_LOAD"})  # fmt: skip
VALUE_DEFINES = frozenset({"T", "T_LOAD", "Y", "Y_STORE"})


def join_attention(flow: Flow) -> None:
    """Replace the two products of each attention, and the softmax between them, by one dispatch.

    Source: Dao et al. 2022, "FlashAttention"
    """
    for number, weights in flow.alive():
        if weights.kernel == "attention_weights":
            _join(flow, number, weights)


def _join(flow: Flow, number: int, weights: Dispatch) -> None:
    readers = flow.readers.get(flow.roots[weights.writes[0][1].name], set())
    last = next(iter(readers), -1)
    first = flow.maker(dict(weights.reads)["x_buffer"], number)
    if first is None or last < 0 or flow.maker(weights.writes[0][1], last) != number:
        return
    joined = one_dispatch(flow.at(first), weights, flow.at(last), flow.shared_bytes)
    if joined is None or not all(
        operands.binds(flow, info) for _, info in joined.reads + joined.writes
    ):
        return
    if flow.fuse(last, number, lambda *_: joined):
        flow.fuse(last, first, lambda *_: joined)


def one_dispatch(
    scores: Dispatch, weights: Dispatch, values: Dispatch, shared_bytes: int
) -> Dispatch | None:
    """Return one dispatch for attention's three; None if it is not plain, or has no room.

    Args:
        scores: the product of queries and keys.
        weights: the softmax of the scores.
        values: the product of weights and values.
        shared_bytes: the shared memory of a workgroup.
    """
    work = _Work(scores, weights, values)
    return work.joined(shared_bytes) if work.is_plain() else None


@dataclass(frozen=True)
class _Work:
    """Three dispatches of one attention: products that make scores and values, and a softmax."""

    scores: Dispatch
    weights: Dispatch
    values: Dispatch

    def is_plain(self) -> bool:
        """Tell whether nothing else is fused with them, and rows of heads are dense."""
        if not all(map(_in_float32, (self.scores, self.values))):
            return False
        q, w, v = (each.push_values for each in self._all)
        dense = zip(v["batch_shape"], dense_strides(v["batch_shape"]), v["a_batch"], strict=True)
        return (
            not (self.scores.epilogue or self.weights.epilogue or self.weights.prologue)
            and self._types(self.scores) == self._types(self.values)
            and self.weights.define_values["CAPTURE"] == "0"
            and v["alpha"] == 1
            and dict(self.values.reads)["a_buffer"].name == self.weights.writes[0][1].name
            and (q["m"], q["n"]) == (v["m"], v["k"]) == (w["queries"], w["columns"])
            and q["batches"] == v["batches"] == w["rows"] // w["queries"] <= MOST_GROUPS
            and all(size == 1 or step == one * q["m"] * q["n"] for size, one, step in dense)
            and (v["a_row"], v["a_column"]) == (w["columns"], 1)
            and (q["a_column"], q["b_row"], v["b_column"]) == (1, 1, 1)
        )

    @property
    def _all(self) -> tuple[Dispatch, Dispatch, Dispatch]:
        return self.scores, self.weights, self.values

    @staticmethod
    def _types(product: Dispatch) -> list[str]:
        return [value for name, value in product.defines if name in ("T", "T_LOAD")]

    def joined(self, shared_bytes: int) -> Dispatch | None:
        """Return one dispatch for all three; None if its tiles exceed the shared memory."""
        q, w, v = (each.push_values for each in self._all)
        queries, size, value_size = q["m"], q["k"], v["n"]
        tile, axes = _tile(size, value_size, shared_bytes), self._axes()
        if queries < FEWEST_QUERIES or tile is None or axes is None:
            return None
        (rows, keys), (shape, strides) = tile, axes
        push = (
            ("columns", q["n"]),
            ("queries", queries),
            ("heads", w["heads"]),
            ("q_row", q["a_row"]),
            ("k_row", q["b_column"]),
            ("v_row", v["b_row"]),
            ("batch_shape", shape),
            *zip(("q_batch", "k_batch", "v_batch"), strides, strict=True),
            ("scale", q["alpha"]),
            *(each for each in self.weights.push if each[0] in MASK_NUMBERS),
        )
        steps = (size, value_size, q["a_row"], q["b_column"], v["b_row"], *sum(strides, ()))
        of_q, of_v = dict(self.scores.reads), dict(self.values.reads)
        reads = (
            ("q_buffer", of_q["a_buffer"]),
            ("k_buffer", of_q["b_buffer"]),
            ("v_buffer", of_v["b_buffer"]),
            *(each for each in self.weights.reads if each[0] != "x_buffer"),
        )
        defines = (
            *(each for each in self.values.defines if each[0] in VALUE_DEFINES),
            *(each for each in self.weights.defines if each[0] in MASK_DEFINES),
            ("BATCH_AXES", str(len(shape))),
            ("FOURS", str(int(not any(step % 4 for step in steps)))),
        )
        return Dispatch(
            "attention",
            reads,
            self.values.writes,
            (-(-queries // rows), 1, q["batches"]),
            push,
            defines,
            (
                ("WORKGROUP", LANES * rows),
                ("KEYS", keys),
                ("SIZE", size),
                ("VALUE_SIZE", value_size),
                ("LINE", _line(size, value_size)),
            ),
            flops=sum(each.flops for each in self._all),
            iterations=q["n"] * (size + value_size),
            epilogue=self.values.epilogue,
            stores=True,
        )

    def _axes(self) -> tuple[tuple[int, ...], Sequence[tuple[int, ...]]] | None:
        """Return the axes that lead to a head, and the strides of Q, K and V along them."""
        q, v = (each.push_values for each in (self.scores, self.values))
        shape = q["batch_shape"]
        composed = views.compose(
            shape, StridedView(dense_strides(shape)), v["batch_shape"], [StridedView(v["b_batch"])]
        )
        if composed is None:
            return None
        cut, (of_values,) = composed
        of_scores = (
            views.split_view(StridedView(q[name]), cut).strides for name in ("a_batch", "b_batch")
        )
        axes, strides = elementwise.merge_axes(
            views.split_axes(shape, cut), [*of_scores, of_values.strides]
        )
        if len(axes) > MOST_AXES:
            return None
        return (axes, strides) if axes else ((1,), [(0,)] * 3)


def _in_float32(product: Dispatch) -> bool:
    defines = product.define_values
    return product.kernel == "matmul" and (defines["ACC"], defines["BIAS"]) == ("float", "0")


def _tile(size: int, value_size: int, shared_bytes: int) -> tuple[int, int] | None:
    """Return the queries and keys of a workgroup's tile; None if no tile fits."""
    line = _line(size, value_size)
    fitting = (
        (rows, keys)
        for rows, keys in TILES
        if shared_bytes >= 20 * rows + 16 * ((rows + keys) * line + rows * (keys // 4 + 1))
    )
    return next(fitting, None) if value_size <= MOST_VALUES else None


def _line(size: int, value_size: int) -> int:
    return -(-max(size, value_size) // 4) + 1
