"""Dispatch the quantisation of a tensor by the range of its values in this run.

Visited by lab 14. Source: Jacob et al., "Quantization and Training of Neural Networks", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.ops.dtypes import type_defines
from vklab.ops.inputs import require
from vklab.ops.registry import WORKGROUP, Result, operator, output
from vklab.ops.words import word_count
from vklab.types import Dispatch, TensorInfo

__all__ = ["dynamic_quantize_linear", "dynamic_words"]

# Numbers up to which each workgroup takes the range of all of them, which saves a dispatch.
MOST_DIRECT = 4096
# Numbers of one workgroup that takes a part of the range, and the most such workgroups.
EACH, MOST_PARTS = 2048, 256
# Results of one invocation: each workgroup takes the range of the parts anew.
RESULTS, MOST_WORKGROUPS = 4, 4096
FLOAT = frozenset({"float32"})


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: TensorInfo) -> Result:
    """Quantize x to uint8 by its range of values. Source: ONNX DynamicQuantizeLinear-11."""
    require(FLOAT, x)
    made = (output("uint8", x.dims), output("float32", ()), output("uint8", ()))
    return _quantized(x, made, ("y_buffer", "scale_buffer", "zero_buffer"), (1, 1))


@operator("DynamicWords", domain="vklab")
def dynamic_words(X: TensorInfo, *, axis: int) -> Result:
    """Quantize X by its range, four codes along an axis in a word. Source: own.

    The second result holds the scale, and the zero point less 128.
    """
    require(FLOAT, X)
    size, inner = X.dims[axis], math.prod(X.dims[axis + 1 :])
    words = output("uint32", (*X.dims[:axis], word_count(size), *X.dims[axis + 1 :]))
    return _quantized(X, (words, output("float32", (2,))), ("words_buffer", "scaling_buffer"),
                      (size, inner))  # fmt: skip


def _quantized(
    x: TensorInfo, made: tuple[TensorInfo, ...], names: Sequence[str], sizes: tuple[int, int]
) -> Result:
    """Return the dispatches that take the range of x, and quantise x.

    Args:
        x: the tensor.
        made: the results, the codes first.
        names: the buffers of the results.
        sizes: the size of the axis along which words join codes, and of the axes behind it.
    """
    parts = min(-(-x.count // EACH), MOST_PARTS)
    is_direct = x.count <= MOST_DIRECT
    pairs = output("float32", (parts, 2))
    ranged = Dispatch(
        kernel="value_range",
        reads=(("x_buffer", x),),
        writes=(("pairs_buffer", pairs),),
        workgroups=(parts, 1, 1),
        push=(("count", x.count), ("workgroups", parts)),
        flops=2 * x.count,
        iterations=x.count // max(WORKGROUP * parts, 1) + 1,
    )
    terms = x.count if is_direct else parts
    workgroups = min(-(-made[0].count // (RESULTS * WORKGROUP)), MOST_WORKGROUPS) or 1
    coded = Dispatch(
        kernel="dynamic_codes",
        reads=(("x_buffer", x), *(() if is_direct else (("pairs_buffer", pairs),))),
        writes=tuple(zip(names, made, strict=True)),
        workgroups=(workgroups, 1, 1),
        push=(("count", made[0].count), ("workgroups", workgroups), ("size", sizes[0]),
              ("inner", sizes[1]), ("terms", terms)),
        defines=(("DIRECT", str(int(is_direct))), ("WORDS", str(int("words_buffer" in names))),
                 *type_defines("Y", "uint8")[::2]),
        flops=3 * x.count,
        iterations=terms // WORKGROUP + made[0].count // (WORKGROUP * workgroups) + 2,
    )  # fmt: skip
    if is_direct:
        return Result(made, (coded,))
    return Result(made, (ranged, coded), (pairs,))
