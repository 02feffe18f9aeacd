"""Fusion of dispatches: one file for each kind, applied in one fixed order.

Each kind turns a Flow into a shorter one with the same results: intermediate values are rounded as
if they had been stored. DISABLE_FUSION switches all of them off, DISABLE_PASSES one by its name.
Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from vklab import settings
from vklab.base import optional
from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.fusion import chains, codegen, epilogues, native_halves, prologues, siblings
from vklab.plan.fusion.flow import Flow
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch

__all__ = ["FUSIONS", "check_names", "fuse", "names", "write"]

BLOCKS = ("matmul_blocks", "matvec_blocks", "matvec_floats", "matvec_units")
MOVES = ("elementwise", "pointwise")


def _step(
    module: str, name: str, *kernels: str, on_gpus: bool = False
) -> Callable[[Flow], None]:
    """Return a fusion whose file is loaded for plans that have some of its kernels.

    Args:
        module: the file.
        name: the function.
        *kernels: plans without any of them keep all dispatches.
        on_gpus: whether plans for CPU devices do so, too.
    """
    call = optional.function(f"{__name__}.{module}", name)

    def step(flow: Flow) -> None:
        is_met = any(dispatch.kernel in kernels for _, dispatch in flow.alive())
        if is_met and not (on_gpus and flow.is_cpu):
            call(flow)

    step.__name__, step.__module__ = name, call.__module__
    return step


FUSIONS: tuple[Callable[[Flow], None], ...] = (
    chains.fuse_chains,
    epilogues.fuse_epilogues,
    # after epilogues: a ReLU in between is one
    _step("conv_pools", "fuse_conv_pools", "pool", on_gpus=True),
    # after epilogues: an activation in between stays one
    _step("depthwise_norms", "fuse_depthwise_norms", "normalize"),
    # after epilogues: what lies between the products is one
    _step("squeezes", "fuse_squeezes", "matmul", on_gpus=True),
    # after epilogues: the gate is applied by one of the products
    _step("block_products", "fuse_gates", *BLOCKS),
    _step("block_products", "gate_rows", *BLOCKS),
    # after gates: fewer products repeat the norm
    _step("block_products", "fuse_norms", *BLOCKS),
    # after norms: products that repeat one norm read the same rows
    _step("same_rows", "join_rows", *BLOCKS),
    prologues.fuse_prologues,
    # after epilogues, which store a result transposed at no cost
    _step("operands", "read_strided", *MOVES),
    # after read_strided: the joint kernel reads the same strides
    _step("attention", "join_attention", "attention_weights", on_gpus=True),
    _step("parts", "place_parts", *MOVES),  # the copies that no fusion above has removed
    siblings.join_siblings,
    # after all that changes what reads and writes rows
    _step("block_products", "round_rows", *BLOCKS),
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
        _emit_fours(each) if _is_wide(each) else codegen.emit(each)
        for each in lowered.dispatches
    ))  # fmt: skip


_emit_fours = optional.function(f"{__name__}.fours", "emit")


def _is_wide(dispatch: Dispatch) -> bool:
    """Tell whether a kernel hands four results at once to its epilogue."""
    return dispatch.epilogue is not None and ("WIDE_Y", "1") in dispatch.defines
