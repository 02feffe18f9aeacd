"""Dispatches with who writes and who reads each value: what fusions look at and change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from vklab.graph.graph import Graph
from vklab.ops.dtypes import ELEMENTS
from vklab.plan import storage
from vklab.plan.fusion import codegen, combine
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["Flow", "inputs"]

# Descriptors are cheap, but some devices bind only so many to one kernel.
MOST_BUFFERS = 16
MOST_NAMES = 4
# Vectors of four are read from parts of a value, too.
LEAST_ALIGNMENT = 16
# Narrow types are stored otherwise where a device lacks them, 64-bit ones cannot be.
WORDS = frozenset({"shaderInt64", "shaderFloat64"})
Joined = Callable[[Dispatch, Dispatch], Dispatch | None]


class Flow:
    """The dispatches of a plan by number, as one value after the other is fused away.

    A dispatch that has been fused into another leaves None behind.
    """

    def __init__(self, graph: Graph, lowered: Lowered, info: DeviceInfo) -> None:
        self._lowered = lowered
        self.roots, self.slices = dict(lowered.roots), dict(lowered.slices)
        self.dispatches: list[Dispatch | None] = [_prepared(d) for d in lowered.dispatches]
        self.nodes: list[tuple[str, ...]] = [(name,) for name in lowered.nodes]
        most = info.limits.get("maxPerStageDescriptorStorageBuffers", MOST_BUFFERS)
        self._info, self._widths = info, dict[str, int]()
        self.features, self.is_cpu = info.features, info.is_cpu
        self._most_buffers = min(MOST_BUFFERS, most) if isinstance(most, int) else MOST_BUFFERS
        kept = {lowered.roots[name] for name in graph.outputs}
        kept |= {lowered.roots[name] for cut in lowered.trims.values() for _, name in cut}
        self.kept = kept | {i.name for i in graph.inputs} | lowered.constants.keys()
        self.alignment = max(LEAST_ALIGNMENT, info.limit("minStorageBufferOffsetAlignment"))
        self.writers: dict[str, set[int]] = {}
        self.readers: dict[str, set[int]] = {}
        for number, dispatch in enumerate(lowered.dispatches):
            self._enter(number, dispatch)

    def alive(self) -> Iterator[tuple[int, Dispatch]]:
        """Yield the dispatches that are left, in order."""
        for number in range(len(self.dispatches)):
            dispatch = self.dispatches[number]
            if dispatch is not None:
                yield number, dispatch

    def at(self, number: int) -> Dispatch:
        """Return a dispatch that is alive."""
        dispatch = self.dispatches[number]
        assert dispatch is not None, f"dispatch {number} was fused into another"
        return dispatch

    def maker(self, value: TensorInfo, reader: int) -> int | None:
        """Return the one dispatch that makes a value which only `reader` reads, if that is so."""
        root = self.roots[value.name]
        writers = self.writers.get(root, set())
        if root in self.kept or len(writers) != 1 or self.readers.get(root) != {reader}:
            return None
        return next(iter(writers))

    def computes(self, dtype: str) -> bool:
        """Tell whether the device can do more with a dtype than move its bits."""
        return not (ELEMENTS[dtype].needs & WORDS - self.features)

    def fuse(self, into: int, gone: int | None, joined: Joined) -> bool:
        """Put one dispatch into another, if there is one that does the work of both.

        Args:
            joined: returns that dispatch for the other and the one; None where it cannot be.
        """
        if gone is None:
            return False
        dispatch = joined(self.at(into), self.at(gone))
        if dispatch is None or not codegen.fits(dispatch, self._most_buffers):
            return False
        for number in (into, gone):
            for value in inputs(self.at(number)):
                self.readers[self.roots[value.name]].discard(number)
            for _, value in self.at(number).writes:
                self.writers[self.roots[value.name]].discard(number)
        self.dispatches[into], self.dispatches[gone] = dispatch, None
        self.nodes[into] = (*self.nodes[min(into, gone)], *self.nodes[max(into, gone)])
        self._enter(into, dispatch)
        return True

    def place(self, copy: int, gone: str, root: str, start: int) -> None:
        """Let all that lies in a root lie in another from an element on; leave out its copy."""
        self.dispatches[copy] = None
        for known in (self.readers, self.writers):
            known[root] = (known.pop(gone, set()) | known.get(root, set())) - {copy}
        inside = [name for name, each in self.roots.items() if each == gone]
        self.roots |= dict.fromkeys(inside, root)
        self.slices |= {name: start + self.slices.get(name, 0) for name in inside}

    def width(self, value: TensorInfo) -> int:
        """Return the bytes of an element as the device stores it."""
        if value.dtype not in self._widths:
            stored = np.dtype(storage.stored_dtype(value.dtype, self._info))
            self._widths[value.dtype] = stored.itemsize
        return self._widths[value.dtype]

    def _enter(self, number: int, dispatch: Dispatch) -> None:
        for value in inputs(dispatch):
            self.readers.setdefault(self.roots[value.name], set()).add(number)
        for _, value in dispatch.writes:
            self.writers.setdefault(self.roots[value.name], set()).add(number)

    def lowered(self) -> Lowered:
        """Return what is left."""
        left = [number for number, _ in self.alive()]
        return replace(
            self._lowered,
            dispatches=tuple(d for _, d in self.alive()),
            nodes=tuple(_label(self.nodes[number]) for number in left),
            roots=self.roots, slices=self.slices,
        )  # fmt: skip


def inputs(dispatch: Dispatch) -> list[TensorInfo]:
    """Return all tensors that a dispatch reads, those of what is fused with it included."""
    if dispatch.kernel == "pointwise" and dispatch.pointwise:
        return [operand.info for operand in dispatch.pointwise.operands]
    if dispatch.siblings:
        return [operand.info for work in dispatch.siblings for operand in work.operands]
    found = [i for name, i in dispatch.reads if not (dispatch.prologue and name == "x_buffer")]
    found += [o.info for o in dispatch.prologue.operands] if dispatch.prologue else []
    found += [o.info for o in dispatch.epilogue.operands[1:]] if dispatch.epilogue else []
    return found


def _prepared(dispatch: Dispatch) -> Dispatch:
    if dispatch.pointwise is None:
        return dispatch
    return replace(dispatch, pointwise=combine.prepared(dispatch.pointwise))


def _label(names: tuple[str, ...]) -> str:
    """Return a name for what is made of several nodes."""
    unique = list(dict.fromkeys(names))
    rest = f" + {len(unique) - MOST_NAMES} more" if len(unique) > MOST_NAMES else ""
    return " + ".join(unique[:MOST_NAMES]) + rest
