"""PlanCache: the plans of one graph, by the input shapes and values that determine them.

The caches form a tree. A model that fits one device chunk uses the root, with one entry for each
input shape. Another entry has a `rest`: the cache for the remaining nodes, keyed by the shapes that
they read. Of MatMul, NonZero, MatMul an entry of the root runs the first two nodes; its `rest` has
one entry for each size that NonZero returned. Visited by lab 12.
"""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from vklab import settings
from vklab.errors import ModelError, PlanError
from vklab.graph import bounds
from vklab.ops.dtypes import MOVABLE
from vklab.plan import plan as plans
from vklab.plan.chunk import Chunk
from vklab.plan.plan import Plan
from vklab.types import ANY_SHAPE, TensorInfo

Key = tuple[Any, ...]
log = logging.getLogger(__name__)


class Runner(Protocol):
    """Interface of an entry's runner: a Program, a HostChunk, a Control node or a ChunkGroup."""

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once; take arrays by name, and return the outputs by name."""

    def close(self) -> None:
        """Free all resources except weights."""


@dataclass
class Entry:
    """One extension of a plan prefix, with the runner of its chunks.

    Attributes:
        plan: the prefix and the chunks that the entry adds.
        first: the number of the first added chunk.
        runner: runs the added chunks; None if they have no nodes.
        rest: the cache for the rest of the graph; None if the plan is complete.
        whole: the runner, if it alone computes all outputs of the model; else None.
        overlap: a `many.overlap.Overlap` that runs the entries from here on concurrently, or None.
    """

    plan: Plan
    first: int
    runner: Any
    rest: PlanCache | None = None
    whole: Any = None
    overlap: Any = None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Return the chunks that the entry adds to the prefix."""
        return self.plan.chunks[self.first :]


def signature(value: Any) -> Any:
    """Return the shape and dtype of an array; of any other value its Python type."""
    return (value.shape, value.dtype) if isinstance(value, np.ndarray) else type(value)


def describe(name: str, value: Any, constant: np.ndarray | None = None) -> TensorInfo:
    """Return the TensorInfo of a value: an array, a list (a sequence), or None (an optional).

    Args:
        name: the value's name.
        value: the value.
        constant: the array as a known constant, for a value whose bytes determine the plan.
    """
    if not isinstance(value, np.ndarray):
        return TensorInfo(name, "optional" if value is None else "sequence", ANY_SHAPE)
    dtype = "string" if value.dtype.kind in "OSU" else str(value.dtype)
    return TensorInfo(name, dtype, value.shape, constant)


class PlanCache:
    """Entries that extend one prefix of a plan, the least recently used ones dropped.

    Attributes:
        plan: the prefix; empty at the root.
        executor: makes and runs the entries; an `executor.Executor`.
        names: the values that the rest of the graph reads; their shapes and dtypes form the key.
        needs: names of values whose bytes belong to the key too; planning adds them.
        entries: entries by key, the one used last at the end.
        plans: entries of this cache and of its clones, whose plans are reused.
        memo: what plans for other shapes leave for the next one, shared with clones.

    One thread runs a cache at a time: a session runs its own, and each frame a clone. So `find`
    reads `entries` without a lock. Clones share `plans` and `needs`, which change under the
    executor's lock.
    """

    def __init__(self, plan: Plan, executor: Any) -> None:
        self.plan = plan
        self.executor = executor
        self.names = plan.live
        self.needs: list[str] = []
        self.entries: OrderedDict[Key, Entry] = OrderedDict()
        self.plans: OrderedDict[Key, Entry] = OrderedDict()
        self.memo: list[Any] = []

    def clone(self, executor: Any) -> PlanCache:
        """Return a cache for another executor, with the same plans and programs of its own."""
        other = copy.copy(self)
        other.executor, other.entries = executor, OrderedDict()
        return other

    def find(self, values: Mapping[str, Any]) -> Entry:
        """Return the entry for these values, planned and prepared at its first use.

        Args:
            values: arrays by name; must contain `names`.
        """
        key = self.key(values)
        entry = self.entries.get(key)
        if entry is None:
            with self.executor.lock:
                return self._find_first(key, values)
        if len(self.entries) > 1:
            self.entries.move_to_end(key)
        return entry

    def key(self, values: Mapping[str, Any]) -> Key:
        """Return the key of values: their shapes and dtypes, and the bytes of those in `needs`."""
        key = []
        for name in self.names:  # `signature`, without its call: each run comes here
            value = values[name]
            key.append((value.shape, value.dtype) if isinstance(value, np.ndarray) else type(value))
        return (*key, *[values[name].tobytes() for name in self.needs]) if self.needs else (*key,)

    def _find_first(self, key: Key, values: Mapping[str, Any]) -> Entry:
        known = self.plans.get(key)
        if known:
            entry = self.executor.entry(known.plan, known.first, known)
            entry.rest = known.rest.clone(self.executor) if known.rest else None
        else:
            infos = {name: describe(name, values[name]) for name in self.names}
            made = self.decide(infos, values)
            assert made is not None, "all values are given"
            entry = made
            key = self.key(values)  # planning may have added names to `needs`
        self.keep(key, entry)
        while len(self.entries) > self.executor.kept_count:
            _close(self.entries.popitem(last=False)[1])
        return entry

    def keep(self, key: Key, entry: Entry) -> None:
        """Store an entry as the one used last."""
        self.entries[key] = self.plans[key] = entry
        while len(self.plans) > self.executor.kept_count:
            self.plans.popitem(last=False)

    def prepare(self) -> None:
        """Plan and compile now if dtypes and shapes of all inputs are known.

        Open dimensions are planned at their upper bounds, which reserves memory for all shapes.
        """
        limits = self.plan.options.upper_bounds
        assert self.plan.rest is not None, "a cache is for what is left"
        infos = {info.name: info for info in bounds.at_bounds(self.plan.rest.inputs, limits)}
        if not all(info.is_static and info.dtype in MOVABLE for info in infos.values()):
            return
        try:
            entry = self.decide(infos, None)
        except (ModelError, PlanError) as error:
            if limits:
                error.args = (
                    f"at its upper bounds ({bounds.shown(limits)}) the model cannot run: {error}",
                )
            raise
        if entry:
            self.keep(planned_key(infos.values()), entry)

    def decide(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> Entry | None:
        """Plan the next chunks, and prepare their runner.

        Args:
            infos: dtype and shape of every value in `names`.
            values: the values by name; None if they are not known yet.

        Returns None if the plan depends on a value that is not known yet.
        """
        with settings.settings(**self.plan.options.switches), self.executor.compiling():
            plan = self.extended(infos, values)
            return self.executor.entry(plan, len(self.plan.chunks), None) if plan else None

    def extended(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> Plan | None:
        """Return the extended plan; None if it depends on a value that is not known yet."""
        while True:
            given = dict(infos)
            for name in self.needs:
                array = (values or {}).get(name)
                if isinstance(array, np.ndarray):
                    given[name] = describe(name, array, array.copy())
            plan = plans.extend(self.plan, given, self.executor.facts(), self.memo)
            if not plan.needs:
                log.info("planned for %s: %s", ", ".join(map(str, given.values())), plan)
                return plan
            if values is None:
                return None
            self.needs += plan.needs

    def path(self) -> Iterator[Entry]:
        """Yield the entries of the last run, in the order in which they run."""
        cache: PlanCache | None = self
        while cache is not None and (there := cache.entries or cache.plans):
            latest = next(reversed(there.values()))
            yield latest
            cache = latest.rest

    def close(self) -> None:
        """Free every program of this cache and of the caches of its entries."""
        while self.entries:
            _close(self.entries.popitem()[1])


def planned_key(infos: Iterable[TensorInfo]) -> Key:
    """Return the key of values that are known by dtype and shape only, with empty `needs`."""
    others = {"sequence": list, "optional": type(None), "map": dict}
    return tuple(
        others.get(info.dtype)
        or (info.dims, np.dtype(object if info.dtype == "string" else info.dtype))
        for info in infos
    )


def _close(entry: Entry) -> None:
    """Free an entry and all entries that extend it, without recursion: chains may be long."""
    left: list[Entry] = [entry]
    while left:
        current = left.pop()
        if current.runner:
            current.runner.close()
        while current.rest and current.rest.entries:
            left.append(current.rest.entries.popitem()[1])
