"""PlanCache: the plans of one graph by the shapes and values that decide them.

A prefix tree: behind a chunk whose results decide how a model goes on, each entry has a cache of
its own. A model that a device can run whole has one entry for each input shape. Visited by lab 12.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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

__all__ = ["Entry", "Key", "PlanCache", "Runner", "all_chunks", "describe", "host_reasons",
           "planned_key", "signature"]

Key = tuple[Any, ...]


class Runner(Protocol):
    """What runs the chunks that a plan adds: a Program, the host, a control node, or several."""

    def run(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run once: arrays by name in, outputs by name out."""

    def close(self) -> None:
        """Free everything but weights."""


@dataclass
class Entry:
    """One way on from a prefix.

    Attributes:
        plan: the longer plan.
        first: the number of its first chunk that the prefix does not have.
        runner: runs the chunks from there on; None where there is nothing to run.
        rest: the cache of what comes behind; None if the plan is complete.
        whole: the runner, if it alone makes all outputs of the model: nothing else is to be done.
        overlap: how the whole sequence of entries from here runs with chunks beside each other.
    """

    plan: Plan
    first: int
    runner: Any
    rest: PlanCache | None = None
    whole: Any = None
    overlap: Any = None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Return the chunks that the entry adds."""
        return self.plan.chunks[self.first :]


def signature(value: Any) -> Any:
    """Return what of a value decides how it is run: shape and dtype, or the type."""
    return (value.shape, value.dtype) if isinstance(value, np.ndarray) else type(value)


def describe(name: str, value: Any, constant: np.ndarray | None = None) -> TensorInfo:
    """Return what is known of a value that exists: an array, a list (a sequence), or None."""
    if not isinstance(value, np.ndarray):
        return TensorInfo(name, "optional" if value is None else "sequence", ANY_SHAPE)
    dtype = "string" if value.dtype.kind in "OSU" else str(value.dtype)
    return TensorInfo(name, dtype, value.shape, constant)


class PlanCache:
    """The entries behind one prefix of a plan, and what makes more of them.

    Attributes:
        plan: the prefix; empty at the root.
        executor: makes and runs the entries; an `executor.Executor`.
        names: the values that are read from here on, which decide.
        needs: those of them whose bytes decide, not their shapes alone; found out while planning.
        entries: by key, the one used last at the end.
        plans: entries of this cache and of its clones, whose plans are taken over.
    """

    def __init__(self, plan: Plan, executor: Any) -> None:
        self.plan = plan
        self.executor = executor
        self.names = plan.live
        self.needs: list[str] = []
        self.entries: OrderedDict[Key, Entry] = OrderedDict()
        self.plans: OrderedDict[Key, Entry] = OrderedDict()

    def clone(self, executor: Any) -> PlanCache:
        """Return a cache for frames in flight: plans are shared, programs are its own."""
        other = copy.copy(self)
        other.executor, other.entries = executor, OrderedDict()
        return other

    def find(self, values: Mapping[str, Any]) -> Entry:
        """Return the entry for these values, planned and prepared at its first use.

        Args:
            values: arrays by name, among them those that are read from here on.
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
        """Return what decides how the values are run: shapes, dtypes, and bytes where needed."""
        key = []
        for name in self.names:
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
            key = self.key(values)  # values that planning needed are part of it
        self.keep(key, entry)
        while len(self.entries) > self.executor.kept_count:
            _close(self.entries.popitem(last=False)[1])
        return entry

    def keep(self, key: Key, entry: Entry) -> None:
        """Note an entry as the one used last."""
        self.entries[key] = self.plans[key] = entry
        while len(self.plans) > self.executor.kept_count:
            self.plans.popitem(last=False)

    def prepare(self) -> None:
        """Plan and compile now if dtypes and shapes of all inputs are known.

        Open dimensions are taken at their upper bounds: that reserves the memory of all shapes.
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
                error.args = (f"at its upper bounds ({bounds.shown(limits)}) the model cannot "
                              f"run: {error}",)  # fmt: skip
            raise
        if entry:
            self.keep(planned_key(infos.values()), entry)

    def decide(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> Entry | None:
        """Plan what comes next, and prepare what runs it.

        Args:
            infos: dtype and shape of every value that is read from here on.
            values: the values; None if they are not known yet.

        Returns None if a value decides that is not known yet.
        """
        with self.executor.compiling():
            plan = self.extended(infos, values)
            return self.executor.entry(plan, len(self.plan.chunks), None) if plan else None

    def extended(
        self, infos: Mapping[str, TensorInfo], values: Mapping[str, Any] | None
    ) -> Plan | None:
        """Return the longer plan; None if a value decides that is not known yet."""
        switches = settings.plan_switches()
        prefix = replace(self.plan, options=replace(self.plan.options, switches=switches))
        assert prefix.rest is not None, "a cache is for what is left"
        try:
            while True:
                given = dict(infos)
                for name in self.needs:
                    array = (values or {}).get(name)
                    if isinstance(array, np.ndarray):
                        given[name] = describe(name, array, array.copy())
                plan = plans.extend(prefix, given, self.executor.facts())
                if not plan.needs:
                    return plan
                if values is None:
                    return None
                self.needs += plan.needs
        finally:
            prefix.rest.answers.clear()  # these shapes are done with

    def is_latest(self, key: Key, entry: Entry) -> bool:
        """Tell whether an entry still is the one for a key; it is then the one used last."""
        if self.entries.get(key) is not entry:
            return False
        self.entries.move_to_end(key)
        return True

    def path(self) -> Iterator[Entry]:
        """Yield the entries used last, in the order in which they run."""
        cache: PlanCache | None = self
        while cache is not None and (there := cache.entries or cache.plans):
            latest = next(reversed(there.values()))
            yield latest
            cache = latest.rest

    def close(self) -> None:
        """Free every program from here on."""
        while self.entries:
            _close(self.entries.popitem()[1])


def all_chunks(root: PlanCache) -> Iterator[Chunk]:
    """Yield the chunks used last; in the place of a control node those of its bodies."""
    for entry in root.path():
        bodies = getattr(entry.runner, "bodies", None)
        if bodies is None:
            yield from entry.chunks
        else:
            for body in bodies.values():
                yield from all_chunks(body)


def host_reasons(root: PlanCache) -> dict[str, str]:
    """Return why each node that ran on the host last did so, by node name."""
    reasons: dict[str, str] = {}
    for chunk in all_chunks(root):
        if chunk.kind == "host":
            reasons |= dict.fromkeys((node.name for node in chunk.graph.nodes), "")
        reasons |= chunk.reasons
    return reasons


def planned_key(infos: Iterable[TensorInfo]) -> Key:
    """Return the key of values of which dtypes and shapes are known, and none decides."""
    return tuple((info.dims, np.dtype(info.dtype)) for info in infos)


def _close(entry: Entry) -> None:
    """Free an entry and all that comes behind it; models may have thousands of chunks."""
    left: list[Entry] = [entry]
    while left:
        current = left.pop()
        if current.runner:
            current.runner.close()
        while current.rest and current.rest.entries:
            left.append(current.rest.entries.popitem()[1])
