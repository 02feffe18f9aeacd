"""Fusion of dispatches: one file for each kind, applied in one fixed order.

Each kind turns a Flow into a shorter one with the same results: intermediate values are rounded as
if they had been stored. DISABLE_FUSION switches all of them off, DISABLE_PASSES one by its name.
Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from vklab import settings
from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.fusion import (
    attention,
    block_products,
    chains,
    codegen,
    conv_pools,
    depthwise_norms,
    epilogues,
    fours,
    native_halves,
    operands,
    parts,
    prologues,
    same_rows,
    siblings,
    squeezes,
)
from vklab.plan.fusion.flow import Flow
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo

__all__ = ["FUSIONS", "check_names", "fuse", "names", "write"]

FUSIONS: tuple[Callable[[Flow], None], ...] = (
    chains.fuse_chains,
    epilogues.fuse_epilogues,
    conv_pools.fuse_conv_pools,  # after epilogues: a ReLU in between is one
    depthwise_norms.fuse_depthwise_norms,  # after epilogues: an activation in between stays one
    squeezes.fuse_squeezes,  # after epilogues: what lies between the products is one
    block_products.fuse_gates,  # after epilogues: the gate is applied by one of the products
    block_products.gate_rows,
    block_products.fuse_norms,  # after gates: fewer products repeat the norm
    same_rows.join_rows,  # after norms: products that repeat one norm read the same rows
    prologues.fuse_prologues,
    operands.read_strided,  # after epilogues, which store a result transposed at no cost
    attention.join_attention,  # after read_strided: the joint kernel reads the same strides
    parts.place_parts,  # the copies that no fusion above has removed
    siblings.join_siblings,
    block_products.round_rows,  # after all that changes what reads and writes rows
    native_halves.use_native_halves,  # last: it marks what the texts will be
)


# Choices of kernels that DISABLE_PASSES leaves out by name, too: `plan/tuning` asks.
KERNELS = frozenset({
    "depthwise", "direct", "elements", "few_rows", "fours", "gated", "inner_norms",
    "last_pools", "matrix_attention", "matrix_cache", "matrix_conv", "matrix_last",
    "matrix_product", "one_row", "paired_last", "pairs", "registers", "row_chains",
    "row_registers", "rows_at_once", "shared_floats", "shared_rows", "sliced", "split_sums",
    "tiled", "tiled_last", "unpack_ahead", "winograd",
})  # fmt: skip


def names() -> frozenset[str]:
    """Return the names of all fusions, as DISABLE_PASSES spells them."""
    return frozenset(step.__name__ for step in FUSIONS)


def check_names(passes: Iterable[str]) -> None:
    """Raise PlanError for a name in DISABLE_PASSES that is neither a fusion nor one of `passes`."""
    known = {"all", *passes, *names(), *KERNELS}
    unknown = sorted(settings.names("DISABLE_PASSES") - known)
    if unknown:
        raise PlanError(f"unknown pass {unknown[0]!r} in VKLAB_DISABLE_PASSES; choose from "
                        f"{', '.join(sorted(known))}")  # fmt: skip


def fuse(graph: Graph, lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return fewer dispatches with the same results; `lowered` itself is not changed.

    Args:
        graph: the shaped graph, whose outputs must stay in memory.
        lowered: its dispatches, before kernels are generated for them.
        info: the device, which limits the buffers of a kernel.
    """
    if settings.get("DISABLE_FUSION"):
        return lowered
    disabled = settings.names("DISABLE_PASSES")
    flow = Flow(graph, lowered, info)
    for step in FUSIONS:
        if step.__name__ not in disabled:
            step(flow)
    return flow.lowered()


def write(lowered: Lowered) -> Lowered:
    """Return the dispatches with the Slang text that fusion has made of each."""
    return replace(lowered, dispatches=tuple(
        fours.emit(each) if fours.is_wide(each) else codegen.emit(each)
        for each in lowered.dispatches
    ))  # fmt: skip
