"""fuse_squeezes: compute the two small products of squeeze-and-excite by one dispatch.

Few values lie between them, so that every workgroup can compute all of these. Visited by lab 10.
"""

from __future__ import annotations

import functools

from vklab.ops import dtypes
from vklab.ops.dtypes import FLOATS
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch

# Values in between, elements of the weights that every workgroup reads, rows, invocations of a
# workgroup, and columns of its own.
MOST_HIDDEN, MOST_ELEMENTS, MOST_ROWS, MOST_LANES, OWN = 128, 1 << 16, 64, 1024, 32


def fuse_squeezes(flow: Flow) -> None:
    """Merge a product of few rows with the one before it, if few values lie between them.

    Source: Hu et al. 2018, "Squeeze-and-Excitation Networks"
    """
    for number, dispatch in flow.alive():
        if _is_plain(dispatch) and not dispatch.epilogue:
            hidden = dict(dispatch.reads)["a_buffer"]
            flow.fuse(number, flow.maker(hidden, number), functools.partial(_joined, flow))


def _is_plain(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch is one product of dense matrices, or with a row added."""
    if dispatch.kernel != "matmul" or dispatch.prologue:
        return False
    push, defines = dispatch.push_values, dispatch.define_values
    n, k = push["n"], push["k"]
    steps = push["a_row"], push["a_column"], push["b_row"], push["b_column"]
    row = push["c_row"], push["c_column"], push["beta"]
    return (
        steps == (k, 1, n, 1)
        and push["alpha"] == 1
        and push["batches"] == 1
        and push["start"] == 0
        and push["m"] <= MOST_ROWS
        and defines["ACC"] == "float"
        and (defines["BIAS"] == "0" or row == (0, 1, 1))
    )


def _joined(flow: Flow, last: Dispatch, first: Dispatch) -> Dispatch | None:
    hidden = dict(last.reads)["a_buffer"]
    if flow.count(hidden, last) > 1 or flow.slices.get(hidden.name, 0):
        return None  # such as a product with itself
    return one_dispatch(last, first, flow.info.limit("maxComputeWorkGroupInvocations"))


def one_dispatch(last: Dispatch, first: Dispatch, most: int) -> Dispatch | None:
    """Return two products as one dispatch; None if they have no such form.

    Args:
        last: the product that reads the other's result.
        first: the other product.
        most: the invocations that a workgroup may have.
    """
    push, after = first.push_values, last.push_values
    if not _is_plain(first) or (after["m"], after["k"]) != (push["m"], push["n"]):
        return None
    rows, hidden, k, n = push["m"], push["n"], push["k"], after["n"]
    tensors = (*first.reads, *first.writes, *last.reads, *last.writes)
    dtype, lanes = first.writes[0][1].dtype, min(most, MOST_LANES) // OWN * OWN
    alike = dtype in FLOATS and {info.dtype for _, info in tensors} == {dtype}
    if not alike or k * hidden > MOST_ELEMENTS or hidden > min(MOST_HIDDEN, lanes):
        return None
    work = first.epilogue
    if work and (work.target or len(work.operands) > 1 or work.operands[0].dtype != dtype):
        return None
    given, then = dict(first.reads), dict(last.reads)
    reads = {
        "x_buffer": given["a_buffer"],
        "w_buffer": given["b_buffer"],
        "v_buffer": then["b_buffer"],
    }
    biases = {"bias_buffer": given.get("c_buffer"), "last_buffer": then.get("c_buffer")}
    reads |= {name: info for name, info in biases.items() if info is not None}
    return Dispatch(
        "squeeze",
        tuple(reads.items()),
        (("z_buffer", last.writes[0][1]),),
        (-(-n // OWN), rows, 1),
        (("k", k), ("n", n)),
        (
            ("BIAS", str(int("bias_buffer" in reads))),
            ("LAST_BIAS", str(int("last_buffer" in reads))),
            *dtypes.type_defines("T", dtype)[:2],
            *dtypes.type_defines("Y", dtype),
        ),
        (("WORKGROUP", lanes), ("HIDDEN", hidden), ("OWN", OWN)),
        flops=first.flops + last.flops,
        epilogue=work,
    )
