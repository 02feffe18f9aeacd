"""Name the class of a product or convolution: one measurement holds for all of a class.

A class is the kernel, the dtype, the sizes rounded up, and what a kernel's loads depend on. The
measured choices of a device are a mapping from such names. Visited by lab 08.
"""

from __future__ import annotations

import bisect

from vklab.plan.tuning import precision
from vklab.plan.tuning.products import tiled
from vklab.plan.tuning.tiles import ProductSizes
from vklab.types import Dispatch

# Sizes up to 8 are exact; above them a class is at most a quarter wide.
_LIMITS = sorted({1, 2, 3, *((4 + quarter) << power for quarter in range(4)
                             for power in range(40))})  # fmt: skip


class Problem(str):
    """Name of a class; it also has one product of the class, from which it was made."""

    dispatch: Dispatch
    sizes: ProductSizes


def of(dispatch: Dispatch, sizes: ProductSizes) -> Problem:
    """Return the class of a product, such as `matmul half 256x768x768x1 kn8`.

    Args:
        dispatch: the product, with its weights in the layout that is read.
        sizes: m, n, k and the batch count.
    """
    forms = {
        "conv": _conv_form,
        "conv_last": _last_form,
        "conv_words": _words_form,
        "matvec_units": _blocks_form,
        "matvec_floats": _blocks_form,
    }
    form = forms.get(dispatch.kernel, _product_form)(dispatch)
    shape = "x".join(str(rounded(size)) for size in sizes)
    dtype = dispatch.define_values.get("T", "int8")
    dtype += f" {precision.chosen()}" if precision.chosen() else ""
    problem = Problem(f"{dispatch.kernel} {dtype} {shape} {form}")
    problem.dispatch, problem.sizes = dispatch, sizes
    return problem


def rounded(size: int) -> int:
    """Return the largest size of a size's class; only comparisons look at the size itself."""
    return _LIMITS[bisect.bisect_left(_LIMITS, size)]


def _product_form(dispatch: Dispatch) -> str:
    """Return along which sides the operands are dense, and how many elements a load may take."""
    push = dispatch.push_values
    along_k, along_n = push["a_column"] == 1, push["b_column"] == 1
    a = "k" if along_k else "m" if push["a_row"] == 1 else "-"
    b = "n" if along_n else "k" if push["b_row"] == 1 else "-"
    steps = (
        push["a_row"] if along_k else push["a_column"],
        push["k" if along_k else "m"],
        push["b_row"] if along_n else push["b_column"],
        0 if along_n and push["b_row"] > push["n"] else push["n" if along_n else "k"],
        *push["a_batch"],
        *push["b_batch"],
    )
    widths = (8, 4, 1) if dispatch.define_values["T"] == "half" else (4, 1)
    width = next(w for w in widths if w == 1 or not any(step % w for step in steps))
    return f"{a}{b}{width}"


def _conv_form(dispatch: Dispatch) -> str:
    """Return the window, its stride, the groups, and whether the weights can be prepacked."""
    push = dispatch.push_values
    window = f"{push['kernel_h']}x{push['kernel_w']}/{push['stride_h']}x{push['stride_w']}"
    packed = "packed" if tiled.in_chunks(dispatch) else "given"
    return f"{window} g{rounded(push['groups'])} {packed}"


def _last_form(dispatch: Dispatch) -> str:
    """Return the window, its stride, the groups, and the channels that one load may take."""
    push, constants = dispatch.push_values, dispatch.constant_values
    sides = dispatch.define_values
    window = f"{sides['KERNEL_H']}x{sides['KERNEL_W']}/{push['stride_h']}x{constants['STRIDE_W']}"
    width = next(w for w in (8, 4, 1) if not constants["DEPTH"] % w and not push["n"] % w)
    return f"{window} g{rounded(push['n'] // push['filters'])} {width}"


def _words_form(dispatch: Dispatch) -> str:
    """Return the window, its stride, the groups, and what the result is."""
    push, defines = dispatch.push_values, dispatch.define_values
    window = f"{push['kernel_h']}x{push['kernel_w']}/{push['stride_h']}x{push['stride_w']}"
    grouped = "" if push["group_filters"] == push["filters"] else " grouped"
    result = "codes" if defines["QUANTIZE"] == "1" else "real"
    return f"product {result}" if defines["LAST"] == "1" else f"{window}{grouped} {result}"


def _blocks_form(dispatch: Dispatch) -> str:
    """Return the format of the weights, how it is stored, and what the product does beside."""
    defines = dispatch.define_values
    words = [defines["FORMAT"]]
    words += [name.lower() for name in ("SPLIT", "NORM", "GATED") if defines.get(name) == "1"]
    return " ".join(words)
