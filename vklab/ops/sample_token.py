"""Dispatch the choice of a sequence's next token, with options read from a buffer.

One workgroup sorts each run of tokens, then one a sequence cuts and draws. The steps and their
sources are in `vklab/llm/sampling.py`. Visited by lab 19.
"""

from __future__ import annotations

from vklab.errors import ModelError
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.indexing import INDICES, index_defines
from vklab.ops.inputs import require
from vklab.ops.registry import Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

__all__ = ["sample_token"]

RUN, RUNS = 1024, 512  # as in shaders/lib/sampling.slang and sample_draw.slang
OPTIONS, MOST_RECENT = 12, 1024


@operator("SampleToken", domain="vklab")
def sample_token(
    logits: TensorInfo, recent: TensorInfo, step: TensorInfo, options: TensorInfo
) -> Result:
    """Choose a token of each sequence from [batch, (1,) vocabulary] logits. Source: own.

    The outputs are the tokens [batch, 1], the next `recent` and `step`, and the probabilities.

    Args:
        logits: of the last position of each sequence.
        recent: [batch, size], the last tokens; token n of a sequence at position n % size.
        step: [batch], the number of tokens of each sequence so far.
        options: uint32 [1 or batch, 12], as of SamplingOptions.words().
    """
    require(FLOATS, logits)
    require(INDICES, recent, step)
    require(frozenset({"uint32"}), options)
    batch = _check(logits, recent, step, options)
    columns, ring = logits.dims[-1], recent.dims[1]
    runs = -(-columns // RUN)
    token, chance = output(recent.dtype, (batch, 1)), output("float32", (batch, 1))
    following, count = output(recent.dtype, recent.dims), output(step.dtype, step.dims)
    keys, ids = (output("uint32", (batch, runs * RUN)) for _ in range(2))
    given = (("recent_buffer", recent), ("step_buffer", step), ("options_buffer", options))
    sizes = (("ring", ring), ("shared_options", int(options.dims[0] == 1)))
    tokens, steps = index_defines("I", recent.dtype), index_defines("S", step.dtype)
    sort = Dispatch(
        "sample_sort", (("x_buffer", logits), *given), (("keys_buffer", keys), ("ids_buffer", ids)),
        grid(batch * runs),
        (("sequences", batch), ("columns", columns), ("runs", runs), *sizes),
        (*type_defines("X", logits.dtype)[:2], *tokens[:2], *steps[:2]),
        iterations=(ring // 256 + 1) * ring + 128,
    )  # fmt: skip
    draw = Dispatch(
        "sample_draw", (("keys_buffer", keys), ("ids_buffer", ids), *given),
        (("token_buffer", token), ("next_buffer", following), ("count_buffer", count),
         ("p_buffer", chance)),
        grid(batch), (("sequences", batch), ("runs", runs), *sizes), (*tokens, *steps),
        iterations=8 * columns // 256 + 12 * RUN, in_place=("recent_buffer", "step_buffer"),
    )  # fmt: skip
    return Result((token, following, count, chance), (sort, draw) if batch else (), (keys, ids))


def _check(
    logits: TensorInfo, recent: TensorInfo, step: TensorInfo, options: TensorInfo
) -> int:
    """Return the number of sequences; ModelError for shapes that do not fit each other."""
    batch = logits.dims[0] if logits.rank > 1 else 0
    if logits.rank not in (2, 3) or logits.dims[1:-1] not in ((), (1,)) or batch < 1:
        raise ModelError(f"{logits} must be [batch, vocabulary] or [batch, 1, vocabulary]")
    if not 1 <= logits.dims[-1] <= RUN * RUNS:
        raise ModelError(f"a vocabulary of {logits.dims[-1]} tokens; the kernels sort 1 to "
                         f"{RUN * RUNS}")  # fmt: skip
    if recent.rank != 2 or recent.dims[0] != batch or not 1 <= recent.dims[1] <= MOST_RECENT:
        raise ModelError(f"{recent} must be [{batch}, size], with a size from 1 to {MOST_RECENT}")
    if step.dims != (batch,) or options.dims not in ((1, OPTIONS), (batch, OPTIONS)):
        raise ModelError(f"{step} must be [{batch}], and {options} [1, {OPTIONS}] or "
                         f"[{batch}, {OPTIONS}]")  # fmt: skip
    return batch
