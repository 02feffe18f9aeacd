"""Carry answers to the notebooks that have their exercises today.

An exercise keeps its cell's id when it moves to another lab, so a student's copy of the old lab may
hold an answer whose cell is in another notebook now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from nbformat import NotebookNode
from nbformat.v4 import new_notebook

from vklab_course.student import merge

__all__ = ["Copy", "carry"]

BOTH = "You had written this answer in {}, before the exercise moved here:"
OWN = (
    "The answer above comes from {}. This is the *own* cell that you wrote there; copy what the "
    "answer needs into the *own* cell of this notebook:"
)


@dataclass
class Copy:
    """One student's copy during an update.

    Attributes:
        name: its file name.
        lab: the lab of today; None if the labs no longer have it.
        base: the lab as it was copied.
        mine: what the student has.
        merged: what the copy becomes; None if it must not be touched.
        said: sentences on answers that came or went.
    """

    name: str
    lab: NotebookNode | None
    base: NotebookNode = field(default_factory=new_notebook)
    mine: NotebookNode = field(default_factory=new_notebook)
    merged: NotebookNode | None = None
    said: list[str] = field(default_factory=list)


def carry(copies: Collection[Copy]) -> None:
    """Move each edited answer to the copy of the lab that has its exercise cell today.

    An answer that the student has written there already stays, with the other one in a note behind
    it. An edited own cell of the old notebook is quoted behind the first answer that leaves it.

    Args:
        copies: all copies, merged with today's labs; changed in place.
    """
    homes = {c.id: copy for copy in copies if copy.lab for c in copy.lab.cells if _is_exercise(c)}
    for source in copies:
        met: list[Copy] = []
        for cell in _edited(source):
            home = homes.get(cell.id, source)
            if home is source or not _is_exercise(cell) or source.merged is None:
                continue
            key = cell.metadata["vklab"].get("id", cell.id)
            if home.merged is None:
                source.said.append(f"the answer to {key} stays here: {home.name} is not touched")
                continue
            _settle(cell, source, home)
            if home not in met:
                met.append(home)
                _quote_own(cell.id, source, home)
            source.merged.cells = [c for c in source.merged.cells if c.id != cell.id]
            source.said.append(f"the answer to {key} is in {home.name} now")
            home.said.append(f"the answer to {key} came from {source.name}")


def _is_exercise(cell: NotebookNode) -> bool:
    return merge.role(cell) == "exercise"


def _edited(copy: Copy) -> Iterator[NotebookNode]:
    """Yield the cells that the lab had, that the student has changed, and that the lab has lost.

    Without a base every cell counts as one that the lab had.
    """
    today = merge.by_id(copy.lab) if copy.lab else {}
    base = merge.by_id(copy.base)
    for identifier, cell in merge.by_id(copy.mine).items():
        shipped = base.get(identifier)
        if identifier in today or (base and shipped is None):
            continue
        if shipped is None or shipped.source != cell.source:
            yield cell


def _settle(cell: NotebookNode, source: Copy, home: Copy) -> None:
    """Put an answer into the place of its exercise, or behind the answer that is there."""
    assert home.lab is not None and home.merged is not None
    stub, cells = merge.by_id(home.lab)[cell.id], home.merged.cells
    place = next(n for n, each in enumerate(cells) if each.id == cell.id)
    if cells[place].source == stub.source:
        old = merge.by_id(source.base).get(cell.id)
        cells[place : place + 1] = merge.one(old, cell, stub)
        _keep_verdict(cell, source, home.merged)
    elif cells[place].source != cell.source:
        cells.insert(place + 1, merge.note(cell, BOTH.format(source.name), "moved"))
    merge.unique(home.merged)


def _keep_verdict(cell: NotebookNode, source: Copy, merged: NotebookNode) -> None:
    """Keep what the check of an answer has shown, as `progress` reads it."""
    mine = merge.by_id(source.mine)
    for there in merged.cells:
        same = there.metadata.get("vklab", {}).get("id") == cell.metadata["vklab"].get("id")
        if same and merge.role(there) == "check" and there.id in mine:
            there.outputs = mine[there.id].get("outputs", [])


def _quote_own(identifier: str, source: Copy, home: Copy) -> None:
    assert home.merged is not None
    shipped = merge.by_id(source.base)
    for cell in source.mine.cells:
        before = shipped.get(cell.id)
        if merge.role(cell) == "own" and (before is None or before.source != cell.source):
            place = next(n for n, each in enumerate(home.merged.cells) if each.id == identifier)
            quoted = merge.note(cell, OWN.format(source.name), "moved")
            home.merged.cells.insert(place + 1, quoted)
    merge.unique(home.merged)
