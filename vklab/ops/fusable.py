"""Which kernels take part in fusion: those that write by STORE, those that read x by LOAD.

Their texts and shaders/lib/fused.slangh say how; a test holds these lists to the texts.
"""

from __future__ import annotations

from vklab.ops.dtypes import ELEMENTS, Defines, type_defines
from vklab.types import Dispatch

__all__ = ["LOADS", "STORES", "loads", "stores", "typed"]

# Each element of y is stored once, by one invocation, under its row-major number.
STORES = frozenset({
    "attention_weights", "conv", "conv_nd", "conv_tiled", "conv_transpose", "cumulative", "gather",
    "lrn", "matmul", "matmul_integer", "matmul_nbits", "matmul_tiled", "matvec", "normalize",
    "normalize_known", "pad", "pool", "reduce", "resize", "rotary", "softmax", "sum_splits",
})  # fmt: skip
# Every element of x is read by its row-major number, and in no other way.
LOADS = frozenset({
    "arg_reduce", "attention_weights", "cumulative", "gather", "lrn", "normalize",
    "normalize_known", "pad", "pool", "reduce", "resize", "softmax",
})  # fmt: skip


def stores(dispatch: Dispatch) -> bool:
    """Tell whether an epilogue can be given to a dispatch: its y is all that it writes."""
    names = [(name, info.dtype in ELEMENTS) for name, info in dispatch.writes]
    return dispatch.kernel in STORES and names == [("y_buffer", True)]


def loads(dispatch: Dispatch) -> bool:
    """Tell whether a prologue can be given to a dispatch."""
    x = dict(dispatch.reads).get("x_buffer")
    return dispatch.kernel in LOADS and x is not None and x.dtype in ELEMENTS


def typed(dispatch: Dispatch) -> Defines:
    """Return the defines under which a kernel that only moves bits knows what these mean."""
    defines = dict(dispatch.defines)
    if defines.get("X_LOAD") == "onnx::identity":
        dtype = dict(dispatch.reads)["x_buffer"].dtype
        defines |= dict((*type_defines("X", dtype)[:2], *type_defines("Y", dtype)[::2]))
    return tuple(defines.items())
