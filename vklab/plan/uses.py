"""Index of the readers and writers of each value among dispatches.

Decides nothing. A value is known by its root, the value whose memory it shares. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vklab.types import Dispatch, TensorInfo

__all__ = ["Uses"]


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
        for value in dispatch.tensors_read:
            self.readers.setdefault(self.root(value), set()).add(number)
        for value in dispatch.tensors_written:
            self.writers.setdefault(self.root(value), set()).add(number)

    def leave(self, number: int, dispatch: Dispatch) -> None:
        """Remove the only dispatch of a number."""
        for value in dispatch.tensors_read:
            self.readers[self.root(value)].discard(number)
        for value in dispatch.tensors_written:
            self.writers[self.root(value)].discard(number)
