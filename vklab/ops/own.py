"""Dispatch vklab's own operators, which passes and decoding write into a graph.

Their domain is "vklab", so their names cannot clash with a model's operators.
Visited by lab 10.
"""

from __future__ import annotations

import math

from vklab.errors import ModelError
from vklab.ops.attention import Attending, Heads
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.indexing import INDICES, index_defines
from vklab.ops.inputs import require
from vklab.ops.registry import Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

RUN, BLOCK = 1024, 16  # as in shaders/lib/sampling.slang
RUNS, OPTIONS = 512, 12
HISTOGRAM = 256 * 7 + 1  # words of a sequence's histogram


@operator("Attention", domain="vklab")
def softmax_attention(
    Q: TensorInfo,
    K: TensorInfo,
    V: TensorInfo,
    mask: TensorInfo | None = None,
    *,
    scale: float = 1.0,
    fill: float = -math.inf,
    guarded: int = 0,
) -> Result:
    """Compute Softmax(scale * Q K' + mask) V of every head, for any mask. Source: own.

    Unlike in ONNX's Attention, a row masked as a whole has Softmax's result; `guarded` replaces
    its NaN by 0. A bool mask replaces the scores that it excludes by `fill`.
    """
    require(FLOATS, Q, K, V)
    work = Attending()
    scores = work.scores(Heads.of(Q), Heads.of(K), scale)
    weights, _ = work.weights(scores, mask, empty=2 if guarded else 1, fill=fill)
    work.scratch += [scores, weights]
    result = work.values(weights, Heads.of(V), flat=False)
    return Result((result,), tuple(work.dispatches), tuple(work.scratch))


@operator("SampleToken", domain="vklab")
def sample_token(
    logits: TensorInfo, recent: TensorInfo, step: TensorInfo, options: TensorInfo
) -> Result:
    """Choose a token of each sequence; `vklab/apps/llm/sampling.py` has the steps. Source: own.

    Results are tokens [batch, 1], the next `recent` and `step`, and the tokens' probabilities.
    """
    require(FLOATS, logits)
    require(INDICES, recent, step)
    require(frozenset({"uint32"}), options)
    batch, columns, ring = logits.dims[0], logits.dims[-1], recent.dims[-1]
    runs, shapes = -(-columns // RUN), (recent.dims, step.dims, options.dims[1:])
    if (
        shapes != ((batch, ring), (batch,), (OPTIONS,))
        or logits.dims[1:-1] not in ((), (1,))
        or options.dims[0] not in (1, batch)
        or not 0 < runs <= RUNS
        or not 0 < ring <= RUN
    ):
        raise ModelError(
            f"{logits}, {recent}, {step}, {options} must be [batch, 1 to {RUN * RUNS}]"
            f", [batch, 1 to {RUN}], [batch] and [1 or batch, {OPTIONS}]"
        )
    made = (
        output(recent.dtype, (batch, 1)),
        output(recent.dtype, recent.dims),
        output(step.dtype, step.dims),
        output("float32", (batch, 1)),
    )
    keys = (
        ("keys_buffer", output("uint32", (batch, runs * RUN))),
        ("maxima_buffer", output("uint32", (batch, runs * RUN // BLOCK))),
    )
    given = (("recent_buffer", recent), ("step_buffer", step), ("options_buffer", options))
    sizes = (("sequences", batch), ("runs", runs), ("ring", ring), ("sets", options.dims[0]))
    tokens, steps = index_defines("I", recent.dtype), index_defines("S", step.dtype)
    names = ("token_buffer", "next_buffer", "count_buffer", "p_buffer")
    sums = ("sums_buffer", output("uint32", (batch, HISTOGRAM)))
    return Result(
        made,
        (
            Dispatch(
                "sample_keys",
                (("x_buffer", logits), *given),
                (*keys, sums),
                grid(batch * runs),
                (("columns", columns), *sizes, ("sums", HISTOGRAM)),
                (*type_defines("X", logits.dtype)[:2], *tokens[:2], *steps[:2]),
            ),
            Dispatch(
                "sample_draw",
                (*keys, *given),
                (*zip(names, made, strict=True), sums),
                grid(batch),
                (*sizes, ("slices", 1)),
                (*tokens, *steps),
                iterations=columns // 5 + 8 * RUN,
                in_place=("recent_buffer", "step_buffer"),
            ),
        ),
        tuple(info for _, info in (*keys, sums)),
    )
