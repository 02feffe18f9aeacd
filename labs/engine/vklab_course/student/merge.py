"""Merge a changed lab into a student's edited copy, cell by cell, without losing any work.

A three-way merge of the base (the lab as it was copied), the student's copy, and the lab of today.
Cells are matched by id, never by text or position.
"""

from __future__ import annotations

import copy
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

__all__ = ["by_id", "merge", "note", "one", "role", "unique"]

MINE = "You had changed this cell; the lab has changed it, too. This is what you wrote:"
NEW = "The lab has changed this cell. Your answer above is kept; this is the new text:"
# Roles whose text is the student's work; in all other cells the lab's new text wins.
ANSWERS = ("exercise",)


def merge(base: NotebookNode, mine: NotebookNode, lab: NotebookNode) -> NotebookNode:
    """Return the student's copy with the lab's changes.

    A cell that the student has not edited follows the lab. An edited exercise keeps the student's
    text; another edited cell follows the lab if the lab changed it, with the student's text in a
    note behind it. Extra cells stay behind the same cell.

    Args:
        base: the lab as it was copied.
        mine: the student's copy.
        lab: the lab of today.
    """
    old, new = by_id(base), by_id(lab)
    theirs = by_id(mine)
    merged = copy.deepcopy(mine)
    merged.metadata = {**mine.metadata, "vklab": lab.metadata.get("vklab", {})}
    merged.cells = []
    extras = _extras(mine, new)
    merged.cells += _kept(extras.get("", ()), old)
    for identifier, cell in new.items():
        if identifier in theirs:
            merged.cells += one(old.get(identifier), theirs[identifier], cell)
        elif identifier not in old or role(cell) in ("exercise", "check"):
            merged.cells.append(copy.deepcopy(cell))  # new in the lab, or required by it
        merged.cells += _kept(extras.get(identifier, ()), old)
    return unique(merged)


def by_id(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the cells by id; of a repeated id the first."""
    cells: dict[str, NotebookNode] = {}
    for cell in notebook.cells:
        cells.setdefault(cell.id, cell)
    return cells


def role(cell: NotebookNode) -> str:
    """Return the role of a cell of a notebook, or ""."""
    return str(cell.metadata.get("vklab", {}).get("role", ""))


def _extras(mine: NotebookNode, new: dict[str, Any]) -> dict[str, list[NotebookNode]]:
    """Return the cells that the lab does not have, by the lab's cell before them."""
    extras: dict[str, list[NotebookNode]] = {}
    seen: set[str] = set()
    before = ""
    for cell in mine.cells:
        if cell.id in new and cell.id not in seen:
            before = cell.id
            seen.add(cell.id)
        else:
            extras.setdefault(before, []).append(cell)
    return extras


def _kept(cells: Any, old: dict[str, NotebookNode]) -> list[NotebookNode]:
    """Return extra cells, without unedited ones that the lab has removed."""
    return [copy.deepcopy(c) for c in cells if c.id not in old or c.source != old[c.id].source]


def one(old: NotebookNode | None, mine: NotebookNode, new: NotebookNode) -> list[NotebookNode]:
    """Return what becomes of one cell that the student and the lab have, perhaps with a note.

    Args:
        old: the cell as it was copied, if it was.
        mine: the student's cell.
        new: the lab's cell of today.
    """
    kept = copy.deepcopy(mine)
    kept.metadata = copy.deepcopy(new.metadata)
    if mine.cell_type != new.cell_type:
        return [copy.deepcopy(new), note(mine, MINE, "mine")]
    lab_changed = old is None or old.source != new.source
    touched = old is None or old.source != mine.source
    if mine.source == new.source or not lab_changed:
        return [kept]
    if not touched:
        return [copy.deepcopy(new)]
    if role(new) in ANSWERS:
        return [kept, note(new, NEW, "new")]
    return [copy.deepcopy(new), note(mine, MINE, "mine")]


def note(cell: NotebookNode, words: str, ending: str) -> NotebookNode:
    """Return a text cell that quotes another cell in full.

    Args:
        cell: the cell to quote.
        words: a sentence before it.
        ending: what ends the id of the text cell.
    """
    fence = "```"
    while fence in cell.source:
        fence += "`"
    kind = "python" if cell.cell_type == "code" else "markdown"
    text = f"**{words}**\n\n{fence}{kind}\n{cell.source}\n{fence}"
    made: NotebookNode = new_markdown_cell(text, id=f"{cell.id[:58]}-{ending}")
    return made


def unique(notebook: NotebookNode) -> NotebookNode:
    """Rename the ids of later cells that repeat an id."""
    taken: set[str] = set()
    for cell in notebook.cells:
        wanted, number = cell.id, 2
        while cell.id in taken:
            cell.id = f"{wanted[:60]}-{number}"
            number += 1
        taken.add(cell.id)
    return notebook
