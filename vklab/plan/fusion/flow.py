"""Dispatches of a plan with the writers and readers of each value, as fusions change them.

Decides which fused kernels fit a device, not which fusions to try. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from vklab.graph.graph import Graph
from vklab.ops.dtypes import ELEMENTS
from vklab.plan import storage
from vklab.plan.fusion import combine
from vklab.plan.fusion.text import codegen
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Descriptors are cheap, but some devices bind only a few to one kernel.
MOST_BUFFERS = 16
MOST_NAMES = 4
# Kernels read vectors of four elements from parts of a value, too.
LEAST_ALIGNMENT = 16
# Narrow types are widened where a device lacks them; 64-bit types have no substitute.
WORDS = frozenset({"shaderInt64", "shaderFloat64"})
Joined = Callable[[Dispatch, Dispatch], Dispatch | None]


class Uses:
    """Index of the dispatches that read and write each root, by number.

    Attributes:
        roots: the value whose memory each value shares.
        readers: the numbers of the dispatches that read each root.
        writers: the numbers of the dispatches that write each root.
        kept: the roots that must stay in memory.
    """

    def __init__(
        self, roots: Mapping[str, str], dispatches: Iterable[Dispatch] = (),
        kept: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Index dispatches, which are numbered in their order.

        Args:
            roots: the value whose memory each value shares.
            dispatches: the dispatches; `enter` adds others.
            kept: as the attribute.
        """
        self.roots, self.kept = dict(roots), set(kept)
        self.readers: dict[str, set[int]] = {}
        self.writers: dict[str, set[int]] = {}
        for number, dispatch in enumerate(dispatches):
            self.enter(number, dispatch)

    def root(self, value: TensorInfo) -> str:
        """Return the root of a value; a value that tuning has added is its own."""
        return self.roots.get(value.name, value.name)

    def count(self, value: TensorInfo, dispatch: Dispatch) -> int:
        """Return how many operands of a dispatch are in the memory of a value."""
        return [self.root(info) for info in dispatch.tensors_read].count(self.root(value))

    def maker(self, value: TensorInfo, reader: int) -> int | None:
        """Return the only writer of a value that only `reader` reads; None if there are others."""
        root = self.root(value)
        writers = self.writers.get(root, set())
        if root in self.kept or len(writers) != 1 or self.readers.get(root) != {reader}:
            return None
        return next(iter(writers))

    def reader(self, value: TensorInfo) -> int | None:
        """Return the only reader of a value with one writer; None if there are others."""
        root = self.root(value)
        readers = self.readers.get(root, set())
        if root in self.kept or len(readers) != 1 or len(self.writers.get(root, ())) != 1:
            return None
        return next(iter(readers))

    def enter(self, number: int, dispatch: Dispatch) -> None:
        """Add a dispatch under a number, beside others of that number."""
        for known, values in (
            (self.readers, dispatch.tensors_read),
            (self.writers, dispatch.tensors_written),
        ):
            for value in values:
                known.setdefault(self.root(value), set()).add(number)

    def leave(self, number: int, dispatch: Dispatch) -> None:
        """Remove the only dispatch of a number."""
        for known, values in (
            (self.readers, dispatch.tensors_read),
            (self.writers, dispatch.tensors_written),
        ):
            for value in values:
                known[self.root(value)].discard(number)


class Flow(Uses):
    """Dispatches of a plan by number, while one value after the other is fused away.

    A dispatch that has been fused into another leaves None behind.

    Attributes:
        slices: the element of its root at which a value starts, if not 0.
        info: the device.
        shared_bytes: the shared memory of a workgroup.
        most_buffers: the buffers that one kernel may bind.
    """

    def __init__(self, graph: Graph, lowered: Lowered, info: DeviceInfo) -> None:
        """Index the dispatches of a plan.

        Args:
            graph: the shaped graph that was lowered.
            lowered: its dispatches; they are copied, not changed.
            info: the device that will run them.
        """
        self._lowered = lowered
        kept = {lowered.roots[name] for name in graph.outputs}
        kept |= {lowered.roots[name] for cut in lowered.trims.values() for _, name in cut}
        kept |= {i.name for i in graph.inputs} | lowered.constants.keys()
        super().__init__(lowered.roots, lowered.dispatches, kept)
        self.slices = dict(lowered.slices)
        self.dispatches: list[Dispatch | None] = [_prepared(d) for d in lowered.dispatches]
        self.nodes: list[tuple[str, ...]] = [(name,) for name in lowered.nodes]
        most = info.limits.get("maxPerStageDescriptorStorageBuffers", MOST_BUFFERS)
        self.info, self._widths = info, dict[str, int]()
        self.features, self.is_cpu = info.features, info.is_cpu
        self.shared_bytes = info.limit("maxComputeSharedMemorySize")
        self.most_buffers = min(MOST_BUFFERS, most) if isinstance(most, int) else MOST_BUFFERS
        self.alignment = max(LEAST_ALIGNMENT, info.limit("minStorageBufferOffsetAlignment"))

    def alive(self) -> Iterator[tuple[int, Dispatch]]:
        """Yield the number and the dispatch of all that remain, in order."""
        for number in range(len(self.dispatches)):
            dispatch = self.dispatches[number]
            if dispatch is not None:
                yield number, dispatch

    def at(self, number: int) -> Dispatch:
        """Return the dispatch of a number; it must not have been fused away."""
        dispatch = self.dispatches[number]
        assert dispatch is not None, f"dispatch {number} was fused into another"
        return dispatch

    def computes(self, dtype: str) -> bool:
        """Tell whether the device has arithmetic for a dtype, beyond moving its bits."""
        return not (ELEMENTS[dtype].needs & WORDS - self.features)

    def fuse(self, into: int, removed: int | None, joined: Joined) -> bool:
        """Replace two dispatches by one that does the work of both; tell whether there is one.

        Args:
            into: the number of the dispatch that remains.
            removed: the number of the dispatch that is removed; None fuses nothing.
            joined: returns the combined dispatch of `into` and `removed`; None if there is none.
        """
        if removed is None:
            return False
        dispatch = joined(self.at(into), self.at(removed))
        if dispatch is None or not codegen.fits(dispatch, self.most_buffers):
            return False
        self.leave(removed, self.at(removed))
        self.leave(into, self.at(into))
        self.dispatches[into], self.dispatches[removed] = dispatch, None
        self.nodes[into] = (*self.nodes[min(into, removed)], *self.nodes[max(into, removed)])
        self.enter(into, dispatch)
        return True

    def width(self, value: TensorInfo) -> int:
        """Return the bytes of one element of a value as the device stores it."""
        if value.dtype not in self._widths:
            stored = np.dtype(storage.stored_dtype(value.dtype, self.info))
            self._widths[value.dtype] = stored.itemsize
        return self._widths[value.dtype]

    def lowered(self) -> Lowered:
        """Return the remaining dispatches as a Lowered."""
        left = [number for number, _ in self.alive()]
        return replace(
            self._lowered,
            dispatches=tuple(d for _, d in self.alive()),
            nodes=tuple(_label(self.nodes[number]) for number in left),
            roots=self.roots,
            slices=self.slices,
            kept=frozenset(self.kept),
        )


def _prepared(dispatch: Dispatch) -> Dispatch:
    if dispatch.pointwise is None:
        return dispatch
    return replace(dispatch, pointwise=combine.prepared(dispatch.pointwise))


def _label(names: tuple[str, ...]) -> str:
    """Return the label of a dispatch that computes several nodes."""
    unique = list(dict.fromkeys(names))
    rest = f" + {len(unique) - MOST_NAMES} more" if len(unique) > MOST_NAMES else ""
    return " + ".join(unique[:MOST_NAMES]) + rest
