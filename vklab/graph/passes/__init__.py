"""Graph passes, one per file, and the order in which they run.

Each pass is a pure function from a Graph with inferred shapes to a Graph. DISABLE_PASSES names
passes to skip. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vklab import settings
from vklab.base import catalogue, stages
from vklab.base.stages import Rule
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.types import DeviceInfo

__all__ = [
    "DTYPES",
    "LAYOUT_PASSES",
    "MOST_ROUNDS",
    "PASSES",
    "apply",
    "require_dtype",
    "run",
    "traverse",
]


Pass = Callable[..., Graph]
# Rows of the catalogue, in order. Plain functions may stand beside them: lab 10 adds some.
PASSES: tuple[Pass, ...] = catalogue.stage(stages.PASS)
LAYOUT_PASSES: tuple[Pass, ...] = catalogue.stage(stages.LAYOUT)
# Channels of 16 bytes.
FLOATS, HALVES = 4, 8
# All passes run again until no graph changes: a pass sometimes enables one listed before it.
MOST_ROUNDS = 4
DTYPES = ("float16",)


def require_dtype(dtype: str) -> None:
    """Raise ModelError for a dtype no model can be computed in; '' is the model's own."""
    if dtype not in ("", *DTYPES):
        raise ModelError(
            f"unknown dtype={dtype!r} to compute a model in; omit it to keep the "
            f"model's own, or choose {', '.join(DTYPES)}"
        )


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
    without = settings.names("DISABLE_PASSES")
    enabled = [] if "all" in without else [p for p in PASSES if _name(p) not in without]
    layouts = LAYOUT_PASSES if enabled and info and not info.is_cpu else ()
    for name, changed in _rounds(graph, enabled):
        graph = changed
        yield name, graph
    for step in (each for each in layouts if _name(each) not in without):
        if (turned := apply(step, graph, HALVES if dtype else FLOATS)) is graph:
            continue
        yield _name(step), turned
        graph = turned
        for name, changed in _rounds(turned, enabled, first=1):
            graph = changed
            yield name, graph
    if dtype:
        for last in catalogue.enabled(stages.DTYPE, False):
            graph = last(graph)
            yield last.name, graph


def _name(step: Pass) -> str:
    return step.name if isinstance(step, Rule) else step.__name__


def apply(step: Pass, graph: Graph, *more: int) -> Graph:
    """Return the graph after a pass, whose file is imported if the graph has what it needs.

    Args:
        step: the pass.
        graph: a graph whose values have infos.
        more: for a pass of `LAYOUT_PASSES`, the elements that take 16 bytes.
    """
    if isinstance(step, Rule) and not step.meets(node.op_type for node in graph.nodes):
        return graph
    return step(graph, *more)


def _rounds(graph: Graph, enabled: Sequence[Pass], first: int = 0) -> Iterator[tuple[str, Graph]]:
    for again in range(first, MOST_ROUNDS):
        before = graph
        for step in enabled:
            changed = apply(step, graph)
            if changed is not graph or not again:
                yield _name(step), changed
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
