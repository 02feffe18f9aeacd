"""fuse_gates, fuse_norms, gate_rows, round_rows: join work to products with weights in blocks.

A gate's product joins that of the values that it gates. With a few rows, a root mean square is
computed by each product that reads the normalised rows; many rows, which matrix units multiply as
halves, are rounded by the kernel that writes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from vklab.ops import dtypes
from vklab.plan import block_units
from vklab.plan.fusion.flow import Flow
from vklab.plan.fusion.text import codegen
from vklab.types import Dispatch, Pointwise, TensorInfo

# Kernels whose results may be halves although they are float32 in the graph.
ROUNDING = frozenset({"normalize", "cache_attention", "cache_combine", "matmul_blocks",
                      "pointwise"})  # fmt: skip


def fuse_gates(flow: Flow) -> None:
    """Compute SiLU(x G') * (x B') by one dispatch.

    Source: Shazeer 2020, SwiGLU
    """
    _join_gates(flow, "matvec_blocks", _gated)


def gate_rows(flow: Flow) -> None:
    """Compute SiLU(x G') * (x B') of many rows by one product with the rows of both matrices.

    Source: Shazeer 2020, SwiGLU
    """
    _join_gates(flow, "matmul_blocks", _rows_gated)


def _join_gates(
    flow: Flow, kernel: str, join: Callable[[Flow, int, Dispatch, Dispatch], Dispatch | None]
) -> None:
    """Join each product that gates another with it.

    Args:
        flow: the dispatches.
        kernel: the kernel of both.
        join: returns the joint dispatch, from the operand that passes SiLU and both products.
    """
    for number, dispatch in flow.alive():
        if dispatch.kernel == kernel and dispatch.epilogue:
            gate = _gate(dispatch.epilogue)
            if gate is not None:
                other = flow.maker(dispatch.epilogue.operands[1].info, number)
                flow.fuse(number, other, functools.partial(join, flow, gate))


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


def _rows_gated(flow: Flow, gate: int, one: Dispatch, two: Dispatch) -> Dispatch | None:
    """Return the joint product; `gate` is 0 if that of `one` passes SiLU."""
    alone = replace(one, epilogue=None)
    if (alone.kernel, alone.defines, alone.push) != (two.kernel, two.defines, two.push) or (
        two.epilogue
        or not _is_same(flow, one, two)
        or not block_units.gates_halves(alone, flow.info)
    ):
        return None
    up, gating = (two, alone) if gate == 0 else (alone, two)
    return replace(
        up,
        reads=(*up.reads, ("g_buffer", dict(gating.reads)["b_buffer"])),
        writes=one.writes,
        flops=one.flops + two.flops,
        defines=(*up.defines, ("GATED", "1")),
        stores=False,
    )


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
                _spread(flow, number, changed)


def _spread(flow: Flow, removed: int, joined: Mapping[int, Dispatch]) -> None:
    """Let every reader of a result do the work that makes it, if all of them can.

    Args:
        flow: the dispatches, which are changed.
        removed: the number of the dispatch whose result only these readers read.
        joined: the combined dispatch of each reader, by the reader's number.
    """
    if not all(codegen.fits(dispatch, flow.most_buffers) for dispatch in joined.values()):
        return
    for into, dispatch in joined.items():
        flow.leave(into, flow.at(into))
        flow.dispatches[into] = dispatch
        flow.nodes[into] = (*flow.nodes[removed], *flow.nodes[into])
        flow.enter(into, dispatch)
    flow.leave(removed, flow.at(removed))
    flow.dispatches[removed] = None


def _is_root_mean_square(dispatch: Dispatch) -> bool:
    """Tell whether a dispatch is RMSNormalization of float32 with a factor for each element."""
    if dispatch.kernel != "normalize" or dispatch.prologue or dispatch.epilogue:
        return False
    push, defines = dispatch.push_values, dispatch.define_values
    plain = (defines["CENTER"], defines["BIAS"], defines["STATISTICS"]) == ("0", "0", "0")
    dtypes = {info.dtype for _, info in (*dispatch.reads, *dispatch.writes)}
    return plain and (push["step"], push["run"]) == (0, 1) and dtypes == {"float32"}


def _normed(flow: Flow, reader: Dispatch, norm: Dispatch) -> Dispatch | None:
    """Return a product that normalises its rows of A; None for another kind of reader."""
    made, reads = block_units.of(reader, flow.info), dict(norm.reads)
    push = norm.push_values
    if made is None or made.constant_values["K"] != push["columns"]:
        return None
    read, written = dict(made.reads)["a_buffer"], norm.writes[0][1]
    is_whole = read.count == written.count and not flow.slices.get(read.name, 0)
    if flow.count(written, reader) > 1 or not is_whole:
        return None
    return block_units.normed(made, reads["x_buffer"], reads["w_buffer"], push["epsilon"])


def round_rows(flow: Flow) -> None:
    """Write rows as halves if only products read them that multiply halves.

    Each of these would round them by a dispatch of its own.
    """
    for number, dispatch in flow.alive():
        value = dispatch.writes[0][1]
        root = flow.roots[value.name]
        readers = flow.readers.get(root, set())
        writes_it = flow.writers.get(root) == {number} and root not in flow.kept
        if not readers or not writes_it or not _may_round(dispatch, value):
            continue
        if all(_takes_halves(flow, flow.at(reader), value, root) for reader in readers):
            half = replace(value, dtype="float16")
            flow.dispatches[number] = _typed(dispatch, "Y", "y_buffer", half)
            for reader in readers:
                rows = replace(dict(flow.at(reader).reads)["a_buffer"], dtype="float16")
                flow.dispatches[reader] = _typed(flow.at(reader), "T", "a_buffer", rows)


def _may_round(dispatch: Dispatch, value: TensorInfo) -> bool:
    """Tell whether a kernel writes float32 to its only result, and can write halves."""
    whole = [name for name, _ in dispatch.writes] == ["y_buffer"] and not dispatch.siblings
    return whole and dispatch.kernel in ROUNDING and value.dtype == "float32"


def _takes_halves(flow: Flow, reader: Dispatch, value: TensorInfo, root: str) -> bool:
    """Tell whether a dispatch reads a value as rows that it rounds to halves, and in no other way.

    Args:
        flow: the dispatches.
        reader: one of those that read the value.
        value: the value.
        root: the root of the value.
    """
    if not block_units.multiplies_halves(reader, flow.info):
        return False
    if reader.define_values["DEQUANTIZE"] == "dequantize_F32":
        return False
    uses = [each for each in reader.tensors_read if flow.roots[each.name] == root]
    rows = dict(reader.reads)["a_buffer"]
    whole = rows.dtype == "float32" and rows.count == value.count
    return len(uses) == 1 and uses[0].name == rows.name and whole and not flow.slices.get(rows.name)


def _typed(dispatch: Dispatch, kind: str, binding: str, half: TensorInfo) -> Dispatch:
    """Return a dispatch with another tensor, of halves, at a binding.

    Args:
        dispatch: the dispatch.
        kind: the name of the tensor's type among the defines.
        binding: the binding's name.
        half: the tensor.
    """
    known = dispatch.define_values
    types = {key: text for key, text in dtypes.type_defines(kind, half.dtype) if key in known}
    reads, writes = (
        tuple((name, half if name == binding else info) for name, info in operands)
        for operands in (dispatch.reads, dispatch.writes)
    )
    return replace(dispatch, reads=reads, writes=writes, defines=tuple((known | types).items()))
