"""Keep a correct answer: collect its text from the cells that ran, judge it in a fresh process.

The text is what grading would collect: the exercise cell, the `own` cell, and the statements of the
lab that these need. Judging takes a second or two, in a thread, while the student goes on.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from vklab_course import slices
from vklab_course.definition.exercise import LAB, Exercise
from vklab_course.student import kept
from vklab_course.student.kept import Judge, Kept, KeptError

__all__ = ["answer_of", "begin", "running_lab", "saved", "wait", "watch"]

WAIT_S = 60.0
IMPORTS = (ast.Import, ast.ImportFrom)
_ran: dict[str, str] = {}  # text of each cell as it ran last, by cell id
_waiting: dict[str, threading.Thread] = {}
_OWN = ("exercise", "own")  # roles of the cells whose text is the student's


def watch(shell: Any) -> None:
    """Note the text of each cell that a notebook runs."""
    shell.events.register("pre_run_cell", _note)


def _note(info: Any) -> None:
    if getattr(info, "cell_id", None):
        _ran[info.cell_id] = info.raw_cell
        _ran[""] = info.cell_id


def running_lab() -> str:
    """Return the lab whose cell runs now, "09" for a cell `l09-e3`; "" if nothing tells."""
    found = re.match(rf"l({LAB})-", _ran.get("", ""))
    return found[1] if found else ""


def begin(exercise: Exercise, judge: Judge) -> None:
    """Begin to keep a correct answer of this notebook, if it builds a piece of the runtime.

    Args:
        exercise: the exercise, whose answer was judged correct.
        judge: judges a text.
    """
    work, shell = kept.work_folder(), sys.modules.get("IPython")
    if exercise.builds is None or work is None or shell is None or not shell.get_ipython():
        return
    note = shell.display.display(_Note(exercise.id, "is judged from its text"), display_id=True)
    try:
        answer = answer_of(exercise, _ran)
    except KeptError as error:
        note.update(_Note(exercise.id, f"is correct, and not kept: {error}"))
        return
    thread = threading.Thread(target=_keep, args=(work, answer, judge, note), daemon=True)
    _waiting[exercise.id] = thread
    thread.start()


def wait(identifier: str) -> None:
    """Wait until an answer that is being judged is kept or not."""
    thread = _waiting.pop(identifier, None)
    if thread is not None:
        thread.join(WAIT_S)


def _keep(work: Path, answer: Kept, judge: Judge, note: Any) -> None:
    reason = judge(answer.id, answer.name, answer.text)
    said = f"is correct, and not kept: judged from its text alone, {reason}"
    if not reason:
        try:
            kept.write(work, answer)
            path = kept.path_of(work, answer.id).relative_to(work.parent)
            said = f"is kept in {path.as_posix()}: use({answer.id!r}) returns it in later labs"
        except OSError as error:
            said = f"is correct, and not kept: {error}"
    note.update(_Note(answer.id, said))


class _Note:
    """A sentence on a kept answer."""

    def __init__(self, identifier: str, said: str) -> None:
        self.text = f"Your answer to {identifier} {said}."

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        style = "border-left:.4em solid #0072B2;padding:.2em .9em;margin:.4em 0"
        return f'<div role="status" style="{style}">{escape(self.text)}</div>'


# ------------------------------------------------------------------------ the text of an answer


def answer_of(exercise: Exercise, texts: Mapping[str, str]) -> Kept:
    """Return an answer as it would be kept.

    Args:
        exercise: the exercise.
        texts: the student's text of each cell, by cell id.

    Raises KeptError that names what is missing.
    """
    path = kept.lab_path(exercise.id)
    cells = [
        (cell["id"], cell["metadata"].get("vklab", {}), "".join(cell["source"]))
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    name, needed = _answer_name(exercise.id, cells), set[str]()
    parts: list[str] = []
    for cell_id, about, shipped in reversed(cells):
        role, given = about.get("role", ""), about.get("id")
        if role == "check" or (not needed and (role, given) != ("exercise", exercise.id)):
            continue
        if (role, given) == ("exercise", exercise.id):
            needed = {name}
            if cell_id not in texts:
                raise KeptError(f"the cell {cell_id} has not run, or has lost its id")
        text = _plain(texts.get(cell_id, shipped) if role in _OWN else shipped)
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise KeptError(f"the cell {cell_id} is no Python: {error}") from None
        defined = [slices.bound(node) for node in body if not isinstance(node, IMPORTS)]
        whole = bool(about.get("define")) and any(names & needed for names in defined)
        statements = slices.needed_statements(body, needed, whole)
        parts += [_source(text, node) for node in reversed(statements)]
    lost = needed - set(dir(builtins)) - {"__name__"}
    if lost:
        raise KeptError(_missing(sorted(lost), cells, texts))
    return kept.made(exercise, name, _with_needed_imports(parts[::-1]))


def saved(notebook: Path) -> dict[str, str]:
    """Return the text of each code cell of a saved notebook. Raises KeptError if it has none."""
    try:
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        return {
            cell["id"]: "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
        }
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise KeptError(f"{notebook} cannot be read as a notebook: {error}") from None


def _answer_name(identifier: str, cells: Sequence[tuple[str, dict[str, Any], str]]) -> str:
    """Return the name that the lab's check cell passes to `check`."""
    for _, about, text in cells:
        if (about.get("role"), about.get("id")) == ("check", identifier):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "check":
                    return ast.unparse(node.args[1])
    raise KeptError(f"the lab has no cell that checks {identifier}")


def _plain(text: str) -> str:
    """Return the text of a cell as Python: without a cell's magic, with line magics as calls."""
    if text.lstrip().startswith("%%"):
        text = text.lstrip().partition("\n")[2]
    shell = sys.modules.get("IPython")
    if shell is None or not re.search(r"^\s*[%!]", text, re.M):
        return text
    return str(shell.core.inputtransformer2.TransformerManager().transform_cell(text))


def _source(text: str, node: ast.stmt) -> str:
    """Return the text of a statement, with its decorators."""
    decorators = getattr(node, "decorator_list", ())
    if not decorators:
        return ast.get_source_segment(text, node) or ast.unparse(node)
    return "\n".join(text.split("\n")[decorators[0].lineno - 1 : node.end_lineno])


def _with_needed_imports(parts: Sequence[str]) -> str:
    """Return statements as one text, without the names of imports that nothing reads."""
    trees = [ast.parse(part).body for part in parts]
    read = slices.globals_read(
        "\n".join(
            part
            for part, body in zip(parts, trees, strict=True)
            if not isinstance(body[0], IMPORTS)
        )
    )
    lines: list[str] = []
    for part, body in zip(parts, trees, strict=True):
        if not isinstance(body[0], IMPORTS):
            lines.append(part)
            continue
        pruned = [slices.pruned(node, read) for node in body if isinstance(node, IMPORTS)]
        lines += [ast.unparse(node) for node in pruned if getattr(node, "names", ())]
    return "\n".join(lines) + "\n"


def _missing(
    lost: Sequence[str], cells: Sequence[tuple[str, dict[str, Any], str]], texts: Mapping[str, str]
) -> str:
    """Return which names the text lacks, and where the student should write them."""
    own = next((cell_id for cell_id, about, _ in cells if about.get("role") == "own"), "own")
    elsewhere = [name for name in lost if any(_binds(text, name) for text in texts.values())]
    listed = ", ".join(f"`{name}`" for name in elsewhere or lost)
    if not elsewhere:
        return f"it uses {listed}, which no cell defines"
    one = len(elsewhere) == 1
    return (
        f"it uses {listed}, which {'stands' if one else 'stand'} in a cell that is not collected: "
        f"move {'it' if one else 'them'} to the cell `{own}`"
    )


def _binds(text: str, name: str) -> bool:
    try:
        tree = ast.parse(_plain(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        getattr(node, "name", "") == name
        or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        for node in ast.walk(tree)
    )
