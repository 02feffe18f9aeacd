"""Root plan cache of a model whose initializers a run may override.

A run that overrides none uses the plans of the root, where initializers are constants. For each set
of overridden names there is a model in which these are inputs; its plans are in the same table.

Source: ONNX IR specification, section "Graphs": an initializer is the default of the input that has
its name
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vklab.graph.graph import Graph
from vklab.plan.plan import Plan
from vklab.runtime.plan_cache import Entry, Key, PlanCache
from vklab.types import TensorInfo


def overridden(graph: Graph, infos: tuple[TensorInfo, ...]) -> Graph:
    """Return the model with some of its defaults as inputs instead of initializers."""
    names = {info.name for info in infos}
    kept = {name: info for name, info in graph.initializers.items() if name not in names}
    return replace(
        graph,
        inputs=(*graph.inputs, *infos),
        initializers=kept,
        infos={**graph.infos, **{info.name: info for info in infos}},
    )


class _Overridden(PlanCache):
    """Plan cache of runs that override the same initializers; its entries are those of a `Root`."""

    def key(self, values: Mapping[str, Any]) -> Key:
        """Return the key as any cache does, behind the names: sets of names share a table."""
        return (self.names, *super().key(values))


class Root(PlanCache):
    """A root plan cache whose runs may override initializers.

    Args:
        plan: the empty plan of the model.
        executor: makes and runs the entries.
    """

    def __init__(self, plan: Plan, executor: Any) -> None:
        super().__init__(plan, executor)
        self._shared: dict[tuple[str, ...], PlanCache] = {}  # with clones; under executor.lock
        self._own: dict[tuple[str, ...], PlanCache] = {}

    def clone(self, executor: Any) -> Root:
        """Return a cache for another executor, with the same plans and programs of its own."""
        other = super().clone(executor)
        assert isinstance(other, Root)
        other._own = {}
        return other

    def find(self, values: Mapping[str, Any]) -> Entry:
        """Return the entry for these values, among which may be overridden initializers."""
        cache = self._cache(values)
        return cache.find(values) if cache else super().find(values)

    def key(self, values: Mapping[str, Any]) -> Key:
        """Return the key of values, which tells which initializers they override."""
        cache = self._cache(values)
        return cache.key(values) if cache else super().key(values)

    def _cache(self, values: Mapping[str, Any]) -> PlanCache | None:
        """Return the cache for the initializers that values override; None if there are none."""
        if len(values) == len(self.names):
            return None
        graph = self.plan.graph
        infos = tuple(info for info in graph.defaults if info.name in values)
        names = tuple(info.name for info in infos)
        if names and names not in self._own:
            with self.executor.lock:
                if names not in self._shared:
                    model = overridden(graph, infos)
                    plan = replace(self.plan, graph=model, rest=model)
                    self._shared[names] = _Overridden(plan, self.executor)
                    self._shared[names].plans = self.plans
                cache = self._own[names] = self._shared[names].clone(self.executor)
                cache.entries = self.entries
        return self._own.get(names)
