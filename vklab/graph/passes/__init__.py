"""Graph passes, one per file, and the order in which they run.

Each pass is a pure function from a Graph with inferred shapes to a Graph. DISABLE_PASSES names
passes to skip. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vklab import settings
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.graph.passes import (
    channels_last,
    common_subexpressions,
    drop_dead_nodes,
    drop_no_ops,
    fewer_rows,
    fold_batch_norm,
    fold_constants,
    fuse_attention,
    fuse_dynamic,
    fuse_gelu,
    fuse_layer_norm,
    fuse_quantized,
    fuse_rms_norm,
    fuse_rotary,
    fuse_sums,
    join_heads,
    join_products,
    join_views,
    join_words,
    merge_pads,
    move_quantization,
    move_transposes,
    norm_scales,
    open_quantized,
    patches,
    slice_gathers,
    spread_sums,
    to_float16,
    widen_weights,
)
from vklab.types import DeviceInfo

__all__ = ["DTYPES", "LAYOUT_PASSES", "MOST_ROUNDS", "PASSES", "Effect", "disabled", "effects",
           "require_dtype", "run", "traverse"]

# Simplifications come before fusions, and passes that leave unread nodes before dead-code removal.
PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fold_constants.fold_constants,  # first: later passes read constants
    drop_no_ops.drop_no_ops,  # patterns need not skip Identity
    slice_gathers.slice_gathers,  # before passes that know how to move a Slice
    move_transposes.move_transposes,  # nodes between two Transposes become a chain
    join_views.join_views,  # patterns need not know Squeeze, Flatten and their like
    common_subexpressions.common_subexpressions,  # patterns compare values by name
    merge_pads.merge_pads,
    open_quantized.open_quantized,
    move_quantization.move_quantization,  # a product then finds the codes that it reads
    fuse_quantized.fuse_quantized,
    join_words.join_words,
    fuse_sums.fuse_sums,
    fuse_dynamic.fuse_dynamic,
    fuse_layer_norm.fuse_layer_norm,  # before RMSNorm, a smaller pattern inside it
    fuse_rms_norm.fuse_rms_norm,
    fuse_gelu.fuse_gelu,
    fuse_rotary.fuse_rotary,
    fuse_attention.fuse_attention,
    join_products.join_products,  # after fuse_rotary: its nodes mark the products to join
    fold_batch_norm.fold_batch_norm,  # after every exact pass, because it changes rounding
    drop_dead_nodes.drop_dead_nodes,
    widen_weights.widen_weights,  # what integer products use is gone by now
)
# For GPUs, after the passes above; then they run again.
LAYOUT_PASSES: tuple[Callable[[Graph, int], Graph], ...] = (
    patches.patches,  # before channels_last, which converts other convolutions
    spread_sums.spread_sums,
    join_heads.join_heads,
    fewer_rows.fewer_rows,
    channels_last.channels_last,
    norm_scales.norm_scales,  # last: no Transpose is left between a norm and its products
)
# Channels of 16 bytes.
FLOATS, HALVES = 4, 8
# All passes run again until no graph changes: a pass sometimes enables one listed before it.
MOST_ROUNDS = 4
DTYPES = ("float16",)


def require_dtype(dtype: str) -> None:
    """Raise ModelError for a dtype no model can be computed in; '' is the model's own."""
    if dtype not in ("", *DTYPES):
        raise ModelError(f"unknown dtype={dtype!r} to compute a model in; omit it to keep the "
                         f"model's own, or choose {', '.join(DTYPES)}")  # fmt: skip


def disabled() -> frozenset[str]:
    """Return the names in DISABLE_PASSES: graph passes, fusions of dispatches, or 'all'."""
    return settings.names("DISABLE_PASSES")


def traverse(
    graph: Graph, dtype: str = "", info: DeviceInfo | None = None
) -> Iterator[tuple[str, Graph]]:
    """Apply the passes in order; yield the name of each pass and the graph after it.

    The first round yields every pass, later rounds only passes that change the graph.

    Args:
        graph: a graph whose values have infos.
        dtype: "float16" to compute in half precision. That pass is last, so that no casts are
            inside patterns and derived weights are rounded once.
        info: the device; a GPU's layouts differ from the model's.
    """
    require_dtype(dtype)
    without = disabled()
    enabled = [] if "all" in without else [p for p in PASSES if p.__name__ not in without]
    layouts = LAYOUT_PASSES if enabled and info and not info.is_cpu else ()
    if info and not info.cooperative_matrices:  # what takes norms without factors
        layouts = tuple(step for step in layouts if step is not norm_scales.norm_scales)
    for name, changed in _rounds(graph, enabled):
        graph = changed
        yield name, graph
    for step in (each for each in layouts if each.__name__ not in without):
        if (turned := step(graph, HALVES if dtype else FLOATS)) is graph:
            continue
        yield step.__name__, turned
        graph = turned
        for name, changed in _rounds(turned, enabled, first=1):
            graph = changed
            yield name, graph
    if dtype:
        graph = to_float16.to_float16(graph)
        yield "to_float16", graph


def _rounds(
    graph: Graph, enabled: Sequence[Callable[[Graph], Graph]], first: int = 0
) -> Iterator[tuple[str, Graph]]:
    for again in range(first, MOST_ROUNDS):
        before = graph
        for step in enabled:
            changed = step(graph)
            if changed is not graph or not again:
                yield step.__name__, changed
            graph = changed
        if graph is before:
            break


def run(graph: Graph, dtype: str = "", info: DeviceInfo | None = None) -> Graph:
    """Return a graph after all passes.

    Args:
        graph: a graph whose values have infos.
        dtype: as in `traverse`.
        info: as in `traverse`.
    """
    for _, changed in traverse(graph, dtype, info):
        graph = changed
    return graph


@dataclass(frozen=True)
class Effect:
    """Effect of one pass on a graph: its number of nodes before and after."""

    name: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} nodes"


def effects(graph: Graph, dtype: str = "") -> tuple[Effect, ...]:
    """Return the effect of every pass that `traverse` yields, in order."""
    results: list[Effect] = []
    count = len(graph.nodes)
    for name, changed in traverse(graph, dtype):
        results.append(Effect(name, count, len(changed.nodes)))
        count = len(changed.nodes)
    return tuple(results)
