"""Graph passes, one per file, and the order in which they run.

Each pass is a pure function from a Graph with inferred shapes to a Graph. DISABLE_PASSES names
passes to skip. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vklab import settings
from vklab.base import optional
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.types import DeviceInfo

__all__ = ["DTYPES", "LAYOUT_PASSES", "MOST_ROUNDS", "PASSES", "Effect", "disabled", "effects",
           "require_dtype", "run", "traverse"]


def _step(name: str, *operators: str) -> Callable[..., Graph]:
    """Return a pass by its name, which is its file's, too; the file is loaded when it is needed.

    Args:
        name: the name.
        *operators: the pass changes no graph without any of them; none for a pass of all graphs.
    """
    call = optional.function(f"{__name__}.{name}", name)

    def step(graph: Graph, *more: Any) -> Graph:
        if operators and not any(node.op_type in operators for node in graph.nodes):
            return graph
        changed: Graph = call(graph, *more)
        return changed

    step.__name__, step.__module__ = name, call.__module__
    return step


# Simplifications come before fusions, and passes that leave unread nodes before dead-code removal.
PASSES: tuple[Callable[[Graph], Graph], ...] = (
    _step("fold_constants"),  # first: later passes read constants
    _step("drop_no_ops"),  # patterns need not skip Identity
    _step("slice_gathers", "Gather"),  # before passes that know how to move a Slice
    _step("move_transposes", "Transpose"),  # nodes between two Transposes become a chain
    _step("join_views"),  # patterns need not know Squeeze, Flatten and their like
    _step("common_subexpressions"),  # patterns compare values by name
    _step("merge_pads", "Pad"),
    _step("open_quantized", "QLinearConv", "QLinearMatMul"),
    _step("move_quantization", "DequantizeLinear"),  # a product then finds the codes that it reads
    _step("fuse_quantized", "DequantizeLinear"),
    _step("join_words", "UnpackWords"),
    _step("fuse_sums", "AddWords"),
    _step("fuse_dynamic", "DynamicQuantizeLinear"),
    _step("fuse_layer_norm", "ReduceMean"),  # before RMSNorm, a smaller pattern inside it
    _step("fuse_rms_norm", "ReduceMean"),
    _step("fuse_gelu", "Erf", "Tanh"),
    _step("fuse_rotary", "Neg"),
    _step("fuse_attention", "Softmax", "Attention"),
    _step("join_products", "RotaryEmbedding"),  # after fuse_rotary, whose nodes it looks for
    _step("fold_batch_norm", "Mul", "Add"),  # after every exact pass: it changes rounding
    _step("drop_dead_nodes"),
    _step("widen_weights", "DequantizeLinear"),  # what integer products use is gone by now
)
# For GPUs, after the passes above; then they run again.
LAYOUT_PASSES: tuple[Callable[[Graph, int], Graph], ...] = (
    _step("patches", "Conv"),  # before channels_last, which converts other convolutions
    _step("spread_sums", "Concat"),
    _step("join_heads", "Attention"),
    _step("fewer_rows", "Slice"),
    _step("channels_last", "Conv"),
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
        graph = _step("to_float16")(graph)
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
