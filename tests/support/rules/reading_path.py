"""Sizes of the package in logical lines, and the files that a run of a model executes.

A logical line is a statement: no formatter moves the count. Docstrings are none. Run as a file with
a model and its inputs, it prints one JSON object about a load and a run of the model.
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import tokenize
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PROFILED = "READING_PATH_PROFILED"
ROOT = Path(__file__).resolve().parents[3]
CORE = ("base", "vulkan", "shader", "ops", "graph", "plan", "runtime")
# What a first reader can leave out, though a run executes some of it.
SIDE = ("graph/passes", "plan/tuning", "plan/fusion", "plan/templates", "plan/report", "plan/place",
        "runtime/many", "runtime/observe", "runtime/compiled", "runtime/bound", "runtime/cuda",
        "runtime/polled")  # fmt: skip


def logical_lines(text: str) -> set[int]:
    """Return the numbers of the lines on which a statement ends, docstrings apart."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        node.body[0].end_lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, kinds) and ast.get_docstring(node) is not None
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        token.start[0]
        for token in tokens
        if token.type == tokenize.NEWLINE and token.start[0] not in docstrings
    }


def size_of(*names: str) -> int:
    """Return the logical lines of files, and of all files in folders, of the package."""
    paths = [ROOT / "vklab" / name for name in names]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return sum(len(logical_lines(file.read_text("utf-8"))) for file in files)


def core_size() -> int:
    """Return the logical lines of the core: its folders, and the files beside them."""
    return size_of(*CORE, *(file.name for file in (ROOT / "vklab").glob("*.py")))


def is_on_path(name: str) -> bool:
    """Tell whether a file that a run executes is one that a first reader reads."""
    return not name.startswith(("ops/", *(f"{folder}/" for folder in SIDE)))


def describe(model: str, inputs: str) -> dict[str, Any]:
    """Load and run a model in this process; return which files that executed, and their lines."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            ran.add(frame.f_code)

    if PROFILED in os.environ:  # slow: only where lines that ran are counted
        sys.setprofile(note)
    import numpy as np

    import vklab

    with vklab.load(model, os.environ.get("VKLAB_DEVICE")) as session:
        session.run(
            {
                name: array
                for name, array in np.load(inputs).items()
                if name in {info.name for info in session.inputs}
            }
        )
    sys.setprofile(None)
    modules = {
        str(module.__file__)
        for name, module in sys.modules.items()
        if name.split(".")[0] == "vklab" and getattr(module, "__file__", None)
    }
    files: dict[str, dict[str, int]] = {}
    for name in sorted(modules):
        text = Path(name).read_text("utf-8")
        lines = logical_lines(text)
        used = {
            number
            for code in ran
            if code.co_filename == name and code.co_name != "<module>"
            for *_, number in code.co_lines()
        }
        files[str(Path(name).relative_to(ROOT / "vklab"))] = {
            "code": len(lines),
            "all": len(text.splitlines()),
            "ran": len(lines & used),
        }
    return {"files": files}


def table(files: dict[str, dict[str, int]]) -> list[tuple[str, int, int, int, int]]:
    """Return folder, files, logical lines, all lines, lines of functions that ran; `ops` last."""
    folders: dict[str, list[dict[str, int]]] = {}
    for name, counts in files.items():
        folder = f"{name.rpartition('/')[0]}/" if "/" in name else "(top level)"
        folders.setdefault(folder, []).append(counts)
    order = sorted(folders, key=lambda folder: (folder == "ops/", folder))
    return [
        (
            folder,
            len(folders[folder]),
            *(sum(c[kind] for c in folders[folder]) for kind in ("code", "all", "ran")),
        )
        for folder in order
    ]  # type: ignore[misc]


def total(files: dict[str, dict[str, int]], kind: str = "code") -> int:
    """Return the lines of all files but those of `ops/`."""
    return sum(c[kind] for name, c in files.items() if not name.startswith("ops/"))


def on_path(files: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the files that a first reader reads."""
    return {name: counts for name, counts in files.items() if is_on_path(name)}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(json.dumps(describe(*sys.argv[1:3])))
