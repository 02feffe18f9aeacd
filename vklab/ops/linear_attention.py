"""Dispatch LinearAttention: attention over a state that every step updates by its key and value.

Source: Katharopoulos et al., "Transformers are RNNs", 2020.
"""

from __future__ import annotations

from vklab.errors import ModelError
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.registry import Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

COLUMN_WORKGROUP = 64
# Loop iterations of one invocation in one dispatch; llvmpipe stops loops at twice this number.
MOST_ITERATIONS = 32768
RULES = {"linear": (0, 0), "gated": (1, 0), "delta": (0, 1), "gated_delta": (1, 1)}


@operator("LinearAttention", since=27)
def linear_attention(
    query: TensorInfo,
    key: TensorInfo,
    value: TensorInfo,
    past_state: TensorInfo | None = None,
    decay: TensorInfo | None = None,
    beta: TensorInfo | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> Result:
    """Query a state that keys and values update step by step. Source: ONNX LinearAttention-27."""
    require(FLOATS, query, key, value, past_state, decay, beta)
    dtype = same(query, key, value, decay, beta)
    if (
        update_rule not in RULES
        or (int(decay is not None), int(beta is not None)) != RULES[update_rule]
    ):
        raise ModelError(
            f"update_rule={update_rule!r} with decay {decay} and beta {beta}; choose "
            f"one of {', '.join(RULES)}, with the inputs of that rule"
        )
    heads, group = kv_num_heads, q_num_heads // max(kv_num_heads, 1)
    if heads < 1 or group < 1 or group * heads != q_num_heads or query.rank != 3:
        raise ModelError(
            f"q_num_heads={q_num_heads}, kv_num_heads={heads} do not fit query {query}"
        )
    batch, steps, width = query.dims
    keys, columns = width // q_num_heads, value.dims[-1] // heads
    moments = (batch, steps)
    state = (batch, heads, keys, columns)
    fits = key.dims == (*moments, heads * keys) and value.dims == (*moments, heads * columns)
    fits = fits and width == q_num_heads * keys and (not past_state or past_state.dims == state)
    fits = fits and (not decay or decay.dims in ((*moments, heads), (*moments, heads * keys)))
    if not (fits and (not beta or beta.dims in ((*moments, heads), (*moments, 1)))):
        raise ModelError(f"{key}, {value}, {past_state}, {decay}, {beta} do not fit {query}")
    result = output(dtype, (*moments, q_num_heads * columns))
    present = output(past_state.dtype if past_state else dtype, state)
    count = batch * heads * columns
    if not count:
        return Result((result, present))
    lasting = output("float32", state)
    reads = [("q_buffer", query), ("k_buffer", key), ("v_buffer", value)]
    optional = (("past", past_state), ("decay", decay), ("beta", beta))
    reads += [(f"{name}_buffer", info) for name, info in optional if info is not None]
    given = zip(("PAST", "GATED", "DELTA"), optional, strict=True)
    defines = tuple((name, str(int(info is not None))) for name, (_, info) in given)
    each = keys * (2 + group)
    chunk = max(1, MOST_ITERATIONS // max(each, 1))
    return Result(
        (result, present),
        tuple(
            Dispatch(
                kernel="linear_attention",
                reads=tuple(reads),
                writes=(
                    ("state_buffer", lasting),
                    ("y_buffer", result),
                    ("present_buffer", present),
                ),
                workgroups=grid(-(-count // COLUMN_WORKGROUP)),
                push=(
                    ("count", count),
                    ("steps", steps),
                    ("first", first),
                    ("last", min(first + chunk, steps)),
                    ("heads", heads),
                    ("group", group),
                    ("keys", keys),
                    ("columns", columns),
                    ("decay_width", decay.dims[-1] if decay else 0),
                    ("beta_width", beta.dims[-1] if beta else 0),
                    ("scale", scale or keys**-0.5),
                ),
                defines=(*defines, *type_defines("T", dtype), *type_defines("S", present.dtype)),
                constants=(("WORKGROUP", COLUMN_WORKGROUP),),
                flops=2 * count * (min(first + chunk, steps) - first) * each,
                iterations=min(chunk, steps - first) * (each + group + 1) + 2 * keys,
            )
            for first in range(0, max(steps, 1), chunk)
        ),
        (lasting,),
    )
