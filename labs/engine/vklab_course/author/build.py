"""Build a lab's source into the student notebook and the executed solution.

Decides the content of each product. Cells keep their ids, and nothing depends on the machine, so
that a second build gives the same cells.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from vklab_course import places
from vklab_course.author import regions
from vklab_course.author.lab import Cell, Lab
from vklab_course.author.layout import LINK
from vklab_course.definition.exercise import exercises_of
from vklab_course.places import PROJECT, labs_folder

__all__ = [
    "deeper",
    "execute",
    "solution_notebook",
    "student_notebook",
    "write_notebook",
    "write_solution",
    "write_student",
]

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Calls whose output (source, devices, pixels) differs between machines.
VARYING = re.compile(r"\b(?:show|banner|picture)\(")
IGNORE = "nbval-ignore-output"
CELL_LIMIT_S = 300


def _notebook(lab: Lab, texts: dict[str, str]) -> NotebookNode:
    known = exercises_of(lab.number)
    extras = {key for key, exercise in known.items() if exercise.extra}
    cells = [_cell(cell, texts[cell.id], cell.exercise in extras) for cell in lab.cells]
    about = {"lab": lab.number, "title": lab.title, "minutes": lab.minutes}
    about |= {k: list(v) for k, v in (("before", lab.before), ("know", lab.know)) if v}
    language = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    metadata = {"kernelspec": KERNEL, "language_info": language, "vklab": about}
    notebook: NotebookNode = new_notebook(cells=cells, metadata=metadata)
    notebook.nbformat_minor = 5
    return notebook


def _cell(cell: Cell, text: str, extra: bool) -> NotebookNode:
    metadata: dict[str, Any] = {"vklab": {**cell.meta, "role": cell.role}}
    if extra:
        metadata["vklab"]["extra"] = True
    tags = list(cell.tags)
    if cell.kind == "code" and VARYING.search(text) and IGNORE not in tags:
        tags.append(IGNORE)
    if tags:
        metadata["tags"] = tags
    if "hide-input" in tags:  # JupyterLab's own name for it
        metadata["jupyter"] = {"source_hidden": True}
    if cell.role in ("exercise", "check"):
        metadata["deletable"] = False
    make = new_code_cell if cell.kind == "code" else new_markdown_cell
    made: NotebookNode = make(text, id=cell.id, metadata=metadata)
    return made


def student_notebook(lab: Lab) -> NotebookNode:
    """Return the student's notebook: no solutions, no outputs."""
    return _notebook(lab, {cell.id: regions.unsolved(lab, cell) for cell in lab.cells})


def solution_notebook(lab: Lab) -> NotebookNode:
    """Return the solved notebook, not yet executed."""
    return _notebook(
        lab, {cell.id: deeper(cell.kind, regions.solved(lab, cell)) for cell in lab.cells}
    )


def deeper(kind: str, text: str) -> str:
    """Return a cell's text for `labs/solutions/`: links of markdown go up one folder more."""
    return LINK.sub(r"](../\1)", text) if kind == "markdown" else text


def execute(notebook: NotebookNode, workplace: Path, allow_errors: bool = False) -> NotebookNode:
    """Run a notebook to its end in a fresh kernel; raises CellExecutionError if a cell fails.

    Args:
        notebook: the notebook; it receives the outputs.
        workplace: working folder of the kernel.
        allow_errors: continue after a cell that fails.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_LIMIT_S,
        kernel_name="python3",
        allow_errors=allow_errors,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": workplace}},
    )
    manager = client.create_kernel_manager()
    variables = {**os.environ, "PYTHONPATH": places.search_path(), **_lab_variable()}
    with tempfile.TemporaryDirectory(prefix="vklab-") as sockets:
        if os.name == "posix":  # a free port may be taken before the kernel has started
            manager.transport, manager.ip = "ipc", f"{sockets}/kernel"
        done: NotebookNode = client.execute(env=variables)
    done.metadata.pop("widgets", None)
    done.metadata["language_info"] = {
        key: value
        for key, value in done.metadata["language_info"].items()
        if key in ("name", "file_extension", "mimetype")
    }
    return done


def _lab_variable() -> dict[str, str]:
    return {"VKLAB_LABS": str(labs_folder())} if labs_folder() != (PROJECT / "labs") else {}


def write_notebook(notebook: NotebookNode, path: Path) -> bool:
    """Write a notebook if it differs from the file; tell whether it did."""
    nbformat.validate(notebook)
    text = nbformat.writes(notebook, version=4) + "\n"
    if path.is_file() and path.read_text("utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)
    return True


def write_student(lab: Lab, root: Path | None = None) -> Path:
    """Build `labs/NN_slug.ipynb`; return its path."""
    path = (root or labs_folder()) / f"{lab.name}.ipynb"
    write_notebook(student_notebook(lab), path)
    return path


def write_solution(lab: Lab, root: Path | None = None) -> Path:
    """Build and execute `labs/solutions/NN_slug.ipynb`; return its path."""
    path = (root or labs_folder()) / "solutions" / f"{lab.name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_notebook(execute(solution_notebook(lab), path.parent), path)
    return path
