"""The reading path: the lines of code of the files that a run imports where nothing else is there.

Run in a copy of the package, with that copy as the current folder: prints one JSON object about a
load and a run of the digits, with the lines where READING_PATH_COUNTED is set, and with the lines
that ran where READING_PATH_PROFILED is. In the repository it describes a default run.
"""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import sys
import tokenize
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

BUDGET_LINES = 6_500
COUNTED, PROFILED = "READING_PATH_COUNTED", "READING_PATH_PROFILED"
ROOT = Path(__file__).resolve().parents[3]
_BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENDMARKER)  # fmt: skip


def code_lines(text: str) -> set[int]:
    """Return the numbers of the lines of code: docstrings, comments and blank lines apart."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def without(folder: Path, *folders: str) -> Path:
    """Copy the package and its data into a folder, without some of its folders; return the copy."""
    root = folder / "copy"
    ignore = shutil.ignore_patterns("_spirv")  # bytecode is as good in a copy
    shutil.copytree(ROOT / "vklab", root / "vklab", ignore=ignore)
    for name in ("shaders", "data"):
        shutil.copytree(ROOT / name, root / name)
    for name in folders:
        shutil.rmtree(root / "vklab" / name)
    return root


def describe(root: Path) -> dict[str, Any]:
    """Load and run the digits in this process; return which files that took, and their lines."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            ran.add(frame.f_code)

    if PROFILED in os.environ:  # slow: only where lines that ran are counted
        sys.setprofile(note)
    import numpy as np

    import vklab

    digits = np.load(root / "data" / "digits.npz")
    with vklab.load(root / "data" / "digits_cnn.onnx", os.environ.get("VKLAB_DEVICE")) as session:
        logits = session.run({"image": digits["images"][:50]})["logits"]
    sys.setprofile(None)
    modules = {str(module.__file__) for name, module in sys.modules.items()
               if name.split(".")[0] == "vklab" and getattr(module, "__file__", None)}  # fmt: skip
    files: dict[str, dict[str, int]] = {}
    for name in sorted(modules):
        # Only where they are counted: reading every file takes longer than the run.
        is_counted = COUNTED in os.environ or PROFILED in os.environ
        text = Path(name).read_text("utf-8") if is_counted else ""
        lines = code_lines(text)
        used = {number for code in ran if code.co_filename == name and code.co_name != "<module>"
                for *_, number in code.co_lines() if number in lines}  # fmt: skip
        files[str(Path(name).relative_to(root / "vklab"))] = {
            "code": len(lines), "all": len(text.splitlines()), "ran": len(used),
        }  # fmt: skip
    return {
        "right": float((logits.argmax(1) == digits["labels"][:50]).mean()),
        "files": files,
    }


def table(files: dict[str, dict[str, int]]) -> list[tuple[str, int, int, int, int]]:
    """Return folder, files, lines of code, all lines, lines of functions that ran; `ops` last."""
    folders: dict[str, list[dict[str, int]]] = {}
    for name, counts in files.items():
        folder = f"{name.rpartition('/')[0]}/" if "/" in name else "(top level)"
        folders.setdefault(folder, []).append(counts)
    order = sorted(folders, key=lambda folder: (folder == "ops/", folder))
    return [
        (folder, len(folders[folder]),
         *(sum(c[kind] for c in folders[folder]) for kind in ("code", "all", "ran")))
        for folder in order
    ]  # type: ignore[misc]  # fmt: skip


def total(files: dict[str, dict[str, int]], kind: str = "code") -> int:
    """Return the lines of all files but those of `ops/`."""
    return sum(c[kind] for name, c in files.items() if not name.startswith("ops/"))


if __name__ == "__main__":
    here = Path.cwd()
    sys.path.insert(0, str(here))
    print(json.dumps(describe(here)))
