"""Groups of commands under a cap on memory: what may come next, and what is kept.

A list of commands is {name: (bytes of its result, names of the commands whose results it reads)}.
Visited by lab 06.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["CAP", "WORK", "Work", "kept_bytes", "ready"]

Work = Mapping[str, tuple[int, tuple[str, ...]]]
CAP = 24
WORK: Work = {"a": (4, ()), "b": (8, ("a",)), "c": (4, ()), "d": (5, ()), "e": (1, ("b",)),
              "f": (5, ("a",)), "g": (2, ("c", "f")), "h": (4, ("a",))}  # fmt: skip


def ready(work: Work, done: Collection[str]) -> list[str]:
    """Return the commands that are not done, and whose inputs are."""
    return [n for n, (_, reads) in work.items() if n not in done and all(r in done for r in reads)]


def kept_bytes(work: Work, done: Collection[str]) -> int:
    """Return the bytes of finished results that a later command reads, or that are outputs."""
    readers: dict[str, list[str]] = {n: [] for n in work}
    for name, (_, reads) in work.items():
        for read in reads:
            readers[read].append(name)
    return sum(work[n][0] for n in done if not readers[n] or any(m not in done for m in readers[n]))
