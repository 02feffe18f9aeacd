"""Dispatches that can be fused: an epilogue where y is stored by STORE, a prologue for LOAD of x.

An operator declares both (`Dispatch.stores`, `Dispatch.loads`); shaders/lib/fused.slangh has the
macros, and a test holds the declarations to the kernels. Visited by lab 10.
"""

from __future__ import annotations

from vklab.ops.dtypes import ELEMENTS, Defines, type_defines
from vklab.types import Dispatch, Pointwise

__all__ = ["has_neighbours", "in_fours", "loads", "stores", "typed"]


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
    defines = dict(dispatch.defines)
    if defines.get("X_LOAD") == "onnx::identity":
        dtype = dict(dispatch.reads)["x_buffer"].dtype
        defines |= dict((*type_defines("X", dtype)[:2], *type_defines("Y", dtype)[::2]))
    return tuple(defines.items())


def has_neighbours(work: Pointwise) -> bool:
    """Tell whether neighbours along the last axis are neighbours in every buffer, or one element.

    That depends on structure only, so that shapes share a kernel; `in_fours` is about sizes.
    """
    if not work.shape or (work.target is not None and work.target.strides[-1] != 1):
        return False
    return all(operand.view.strides[-1] in (0, 1) for operand in work.operands[1:])


def in_fours(work: Pointwise | None) -> bool:
    """Tell whether an epilogue is computed for four neighbours at once; without one, always.

    Every four of a row then begin at a multiple of four in every buffer.
    """
    if work is None:
        return True
    if not has_neighbours(work) or work.shape[-1] % 4:
        return False
    views = [operand.view for operand in work.operands[1:] if operand.view.strides[-1] == 1]
    views += [work.target] if work.target is not None else []
    return not any(
        view.start % 4 or any(stride % 4 for stride in view.strides[:-1]) for view in views
    )
