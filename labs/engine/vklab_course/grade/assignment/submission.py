"""One submitted notebook as data: cells by id, or the cause why there are none.

Nothing of a submission is executed, extracted or trusted here. Every limit has a message with the
value and what the student can do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vklab_course.grade.bounds import MAX_BYTES, MAX_CELL_CHARACTERS, MAX_CELLS
from vklab_course.grade.results.schema import digest

__all__ = ["MAX_BYTES", "MAX_CELLS", "MAX_CELL_CHARACTERS", "BadSubmission", "Cell", "Notebook",
           "read_notebook", "too_big"]  # fmt: skip

MERGE = re.compile(rb"^[ \t\"]*(<{7} |>{7} |={7}$)", re.MULTILINE)


class BadSubmission(Exception):
    """A submission that cannot be graded; the message is the cause, for student and instructor."""


def too_big(size_bytes: int) -> BadSubmission:
    """Return the error for a notebook that is larger than the limit."""
    return BadSubmission(
        f"the notebook has {size_bytes / 2**20:.0f} MiB, the limit is "
        f"{MAX_BYTES >> 20}; clear its outputs and hand it in again"
    )


@dataclass(frozen=True)
class Cell:
    """One cell of a submission: its id, kind and text, and of its metadata two words."""

    id: str
    kind: str
    text: str
    role: str = ""
    exercise: str = ""


@dataclass(frozen=True)
class Notebook:
    """A submitted notebook: cells in order, the lab and version it says it is, and its hash."""

    cells: tuple[Cell, ...]
    hash: str
    lab: str = ""
    version: str = ""

    def by_id(self) -> dict[str, list[Cell]]:
        """Return the cells by id; a list of more than one is a repeated id."""
        cells: dict[str, list[Cell]] = {}
        for cell in self.cells:
            cells.setdefault(cell.id, []).append(cell)
        return cells


def read_notebook(data: bytes) -> Notebook:
    """Return a notebook from the bytes of a file. Raises BadSubmission with the cause."""
    if len(data) > MAX_BYTES:
        raise too_big(len(data))
    content = _parse(data)
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        older = isinstance(content, dict) and "worksheets" in content
        raise BadSubmission(
            "it is a notebook of format 3; open and save it in JupyterLab"
            if older
            else "it is JSON and no Jupyter notebook: it has no list of cells"
        )
    metadata = _dict(content.get("metadata"))
    _check_kernel(metadata)
    cells = content["cells"]
    if len(cells) > MAX_CELLS:
        raise BadSubmission(f"it has {len(cells):,} cells, the limit is {MAX_CELLS:,}")
    read = tuple(_cell(number, cell) for number, cell in enumerate(cells, 1))
    if read and not any(cell.id for cell in read):
        raise BadSubmission(
            "its cells have lost their ids (saved by an editor of format 4.4 or "
            "older?); copy the answers into a fresh copy of the lab"
        )
    about = _dict(metadata.get("vklab"))
    return Notebook(read, digest(data), _word(about.get("lab")), _word(about.get("version")))


def _parse(data: bytes) -> Any:
    if not data.strip():
        raise BadSubmission("the file is empty")
    try:
        return json.loads(data.decode("utf-8-sig"), parse_int=_small_int)
    except UnicodeDecodeError as error:
        raise BadSubmission(f"it is not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise BadSubmission("its JSON is nested too deep for a notebook") from None
    except ValueError as error:
        mark = MERGE.search(data)
        if mark:
            line = data.count(b"\n", 0, mark.start()) + 1
            raise BadSubmission(
                f"it has the markers of an unfinished merge (line {line}); resolve "
                "the conflict, open the notebook, and hand it in again"
            ) from None
        detail = str(error)[:200]
        raise BadSubmission(f"it is not JSON ({detail}), so it is no notebook") from None


def _small_int(text: str) -> int:
    return int(text) if len(text) < 20 else 0


def _check_kernel(metadata: Mapping[str, Any]) -> None:
    spec, language = _dict(metadata.get("kernelspec")), _dict(metadata.get("language_info"))
    said = {_word(spec.get("language")), _word(language.get("name"))} - {""}
    other = sorted(word for word in said if word.lower() not in ("python", "ipython"))
    if other:
        name = _word(spec.get("display_name")) or other[0]
        raise BadSubmission(f"its kernel is {name!r} ({other[0]}); the lab runs on Python 3")


def _cell(number: int, cell: Any) -> Cell:
    if not isinstance(cell, dict):
        raise BadSubmission(f"cell {number} is no cell but {type(cell).__name__}")
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise BadSubmission(f"the text of cell {number} is no text but {type(source).__name__}")
    if len(source) > MAX_CELL_CHARACTERS:
        raise BadSubmission(
            f"cell {number} has {len(source):,} characters, the limit is {MAX_CELL_CHARACTERS:,}"
        )
    # A lone surrogate can be written in JSON and in no UTF-8 file.
    source = source.encode("utf-8", "replace").decode("utf-8")
    about = _dict(_dict(cell.get("metadata")).get("vklab"))
    return Cell(
        _word(cell.get("id")),
        _word(cell.get("cell_type")),
        source,
        _word(about.get("role")),
        _word(about.get("id")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""
