"""Graph passes, one per file, in the one order in which they run.

Each is a pure function from a shaped Graph to a Graph; DISABLE_PASSES switches off those that it
names. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vklab import settings
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.graph.passes import (
    common_subexpressions,
    drop_dead_nodes,
    drop_no_ops,
    fold_batch_norm,
    fold_constants,
    fuse_attention,
    fuse_gelu,
    fuse_layer_norm,
    fuse_rms_norm,
    fuse_rotary,
    join_products,
    join_views,
    merge_pads,
    move_transposes,
    to_float16,
)

__all__ = ["DTYPES", "MOST_ROUNDS", "PASSES", "Effect", "disabled", "effects", "require_dtype",
           "run", "walk"]

# What simplifies comes before what looks for a pattern, what leaves rests before what drops them.
PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fold_constants.fold_constants,  # the others see constants where they can be
    drop_no_ops.drop_no_ops,  # patterns need not look behind an Identity
    move_transposes.move_transposes,  # what stood between two Transposes is seen to be a chain
    join_views.join_views,  # one word for Squeeze, Flatten and their like
    common_subexpressions.common_subexpressions,  # equal values have one name in patterns
    merge_pads.merge_pads,
    fuse_layer_norm.fuse_layer_norm,  # before the smaller pattern that lies inside it
    fuse_rms_norm.fuse_rms_norm,
    fuse_gelu.fuse_gelu,
    fuse_rotary.fuse_rotary,
    fuse_attention.fuse_attention,
    join_products.join_products,  # rotary embeddings tell which
    fold_batch_norm.fold_batch_norm,  # rounds: after all that is exact
    drop_dead_nodes.drop_dead_nodes,
)
# All passes run again until none finds anything; a later one seldom opens an earlier one's way.
MOST_ROUNDS = 4
DTYPES = ("float16",)


def require_dtype(dtype: str) -> None:
    """Raise ModelError unless a model can be computed in a dtype; '' is the model's own."""
    if dtype not in ("", *DTYPES):
        raise ModelError(f"dtype={dtype!r} is not one to compute a model in; leave it out for the "
                         f"model's own, or use {', '.join(DTYPES)}")  # fmt: skip


def disabled() -> frozenset[str]:
    """Return the names in DISABLE_PASSES: graph passes, 'all' of them, or fusions."""
    return settings.names("DISABLE_PASSES")


def walk(graph: Graph, dtype: str = "") -> Iterator[tuple[str, Graph]]:
    """Apply the passes in order; yield the name of each and what it has made of the graph.

    The first round yields every pass, later ones those that still find something.

    Args:
        graph: its values have infos.
        dtype: "float16" to compute in half precision: last, so that patterns are found without
            its casts, and weights that passes make of others are rounded once.
    """
    require_dtype(dtype)
    without = disabled()
    enabled = [] if "all" in without else [p for p in PASSES if p.__name__ not in without]
    for again in range(MOST_ROUNDS):
        before = graph
        for step in enabled:
            made = step(graph)
            if made is not graph or not again:
                yield step.__name__, made
            graph = made
        if graph is before:
            break
    if dtype:
        graph = to_float16.to_float16(graph)
        yield "to_float16", graph


def run(graph: Graph, dtype: str = "") -> Graph:
    """Apply every pass in order to a graph whose values have infos."""
    for _, made in walk(graph, dtype):
        graph = made
    return graph


@dataclass(frozen=True)
class Effect:
    """What one pass has made of a graph: how many nodes it had before and has after."""

    name: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} nodes"


def effects(graph: Graph, dtype: str = "") -> tuple[Effect, ...]:
    """Apply the passes in order and return what each has done, in every round that it did."""
    found: list[Effect] = []
    count = len(graph.nodes)
    for name, made in walk(graph, dtype):
        found.append(Effect(name, count, len(made.nodes)))
        count = len(made.nodes)
    return tuple(found)
