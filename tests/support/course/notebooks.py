"""Notebooks for the tests of the course: made by hand, and run under nbval in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[3]
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
LIMIT_S = 900
PATHS = [str(ROOT / folder) for folder in ("", "labs/engine", "tests/stand_ins")]


def notebook(path: Path, cells: Sequence[tuple[str, str]]) -> Path:
    """Write a notebook of code cells, each with what it is said to print."""
    made = []
    for number, (source, printed) in enumerate(cells):
        outputs = [new_output("stream", name="stdout", text=printed)] if printed else []
        cell = new_code_cell(source, id=f"c{number}", execution_count=number + 1, outputs=outputs)
        made.append(cell)
    nbformat.write(new_notebook(cells=made, metadata={"kernelspec": KERNEL}), path)
    return path


def nbval(path: Path, *options: str, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    """Run pytest with nbval on one notebook, away from this project's settings."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(path.parent),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
    ]
    command += ["-p", "vklab_course.grade.session.nbval_plugin"] if plugin else []
    return subprocess.run(
        [*command, *options, str(path)],
        env=variables,
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def run(path: Path, out: Path, *options: str) -> tuple[dict[str, Any], Any]:
    """Run a notebook under nbval with the plugin; return the report and the executed notebook."""
    done = nbval(path, *options, "--nbval-out", str(out))
    report = out / f"{path.stem}.json"
    assert report.is_file(), done.stdout + done.stderr
    return json.loads(report.read_text()), nbformat.read(out / path.name, as_version=4)
