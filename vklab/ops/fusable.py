"""Dispatches that can be fused: an epilogue where y is stored by STORE, a prologue for LOAD of x.

An operator declares both (`Dispatch.stores`, `Dispatch.loads`); shaders/lib/fused.slangh has the
macros, and a test holds the declarations to the kernels. Visited by lab 10.
"""

from __future__ import annotations

from vklab.ops.dtypes import ELEMENTS, Defines, type_defines
from vklab.types import Dispatch


def stores(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch can take an epilogue: it stores y by number, and writes only y."""
    names = [(name, info.dtype in ELEMENTS) for name, info in dispatch.writes]
    return dispatch.stores and names == [("y_buffer", True)]


def loads(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch can take a prologue: it reads x by number, in a dtype of ELEMENTS."""
    x = dict(dispatch.reads).get("x_buffer")
    return dispatch.loads and x is not None and x.dtype in ELEMENTS


def typed(dispatch: Dispatch) -> Defines:
    """Return a dispatch's defines, with typed loads and stores where the kernel copies raw bits."""
    defines = dispatch.define_values
    if defines.get("X_LOAD") == "onnx::identity":
        dtype = dict(dispatch.reads)["x_buffer"].dtype
        defines |= dict((*type_defines("X", dtype)[:2], *type_defines("Y", dtype)[::2]))
    return tuple(defines.items())
