"""fuse_gates, fuse_norms: let products of a few rows with weights in blocks do more.

A gate's product joins that of the values that it gates; a root mean square is computed by each
product that reads the normalised rows, which costs less than a dispatch. Visited by lab 19.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from vklab.plan import block_units
from vklab.plan.fusion.flow import Flow, inputs
from vklab.types import Dispatch, Pointwise

__all__ = ["fuse_gates", "fuse_norms"]


def fuse_gates(flow: Flow) -> None:
    """Compute SiLU(x G') * (x B') by one dispatch.

    Source: Shazeer 2020, SwiGLU
    """
    for number, dispatch in flow.alive():
        if dispatch.kernel == "matvec_blocks" and dispatch.epilogue:
            gate = _gate(dispatch.epilogue)
            if gate is not None:
                other = flow.maker(dispatch.epilogue.operands[1].info, number)
                flow.fuse(number, other, functools.partial(_gated, flow, gate))


def _gate(work: Pointwise) -> int | None:
    """Return the operand that passes SiLU before both are multiplied; None for other work."""
    if len(work.operands) != 2 or len(work.formulas) != 2 or work.target is not None:
        return None
    silu, product = work.formulas
    is_silu = silu.text == "onnx::swish(a, p0)" and silu.numbers == (1.0,)
    if not is_silu or product.text != "onnx::mul(a, b)":
        return None
    gate = silu.arguments[0]
    dense = all(operand.view.is_dense(work.shape) for operand in work.operands)
    narrow = {f.dtype for f in work.formulas} | {o.dtype for o in work.operands} != {"float32"}
    return gate if sorted(product.arguments) == [1 - gate, 2] and dense and not narrow else None


def _gated(flow: Flow, gate: int, one: Dispatch, two: Dispatch) -> Dispatch | None:
    own = block_units.of(replace(one, epilogue=None), flow.info)
    other = block_units.of(two, flow.info)
    if own is None or other is None or not _is_same(flow, own, other):
        return None
    up, gating = (other, own) if gate == 0 else (own, other)
    return block_units.gated(up, gating, one.writes[0][1])


def _is_same(flow: Flow, one: Dispatch, other: Dispatch) -> bool:
    """Tell whether two products read the same rows of A."""
    a, b = (dict(dispatch.reads)["a_buffer"] for dispatch in (one, other))
    starts = (flow.slices.get(a.name, 0), flow.slices.get(b.name, 0))
    return flow.roots[a.name] == flow.roots[b.name] and starts[0] == starts[1]


def fuse_norms(flow: Flow) -> None:
    """Normalise rows by their root mean square inside the products that read them.

    Source: Zhang and Sennrich 2019, RMSNorm
    """
    for number, dispatch in list(flow.alive()):
        root = flow.roots[dispatch.writes[0][1].name]
        readers = flow.readers.get(root, set())
        alone = flow.writers.get(root) == {number} and root not in flow.kept
        if readers and alone and _is_root_mean_square(dispatch):
            joined = {reader: _normed(flow, flow.at(reader), dispatch) for reader in readers}
            changed = {reader: made for reader, made in joined.items() if made is not None}
            if len(changed) == len(joined):
                flow.spread(number, changed)


def _is_root_mean_square(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch is RMSNormalization of float32 with a factor for each element."""
    if dispatch.kernel != "normalize" or dispatch.prologue or dispatch.epilogue:
        return False
    push, defines = dict(dispatch.push), dict(dispatch.defines)
    plain = (defines["CENTER"], defines["BIAS"], defines["STATISTICS"]) == ("0", "0", "0")
    dtypes = {info.dtype for _, info in (*dispatch.reads, *dispatch.writes)}
    return plain and (push["step"], push["run"]) == (0, 1) and dtypes == {"float32"}


def _normed(flow: Flow, reader: Dispatch, norm: Dispatch) -> Dispatch | None:
    """Return a product that normalises its rows of A; None for another kind of reader."""
    made, reads = block_units.of(reader, flow.info), dict(norm.reads)
    push = dict[str, Any](norm.push)
    if made is None or dict(made.constants)["K"] != push["columns"]:
        return None
    read, written = dict(made.reads)["a_buffer"], norm.writes[0][1]
    root = flow.roots[written.name]
    uses = [value for value in inputs(reader) if flow.roots[value.name] == root]
    if len(uses) > 1 or read.count != written.count or flow.slices.get(read.name, 0):
        return None
    return block_units.normed(made, reads["x_buffer"], reads["w_buffer"], push["epsilon"])
