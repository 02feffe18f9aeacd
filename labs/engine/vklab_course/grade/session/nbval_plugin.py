"""Make nbval's limits hard: `pytest -p vklab_course.grade.session.nbval_plugin --nbval PATH ...`.

In stock nbval 0.11 a cell that runs too long can pass, and every cell after it becomes an expected
failure. Here both fail; a notebook has one wall clock; its kernel ends with its child processes;
--nbval-out receives the executed notebook and a report by cell id.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import psutil
import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

__all__ = [
    "Course", "end_kernel", "pytest_addoption", "pytest_runtest_call",
    "pytest_runtest_makereport", "pytest_runtest_setup", "pytest_runtest_teardown",
]  # fmt: skip

# Time for an interrupted cell to send its traceback.
GRACE_S = 5.0
SLICE_S = 0.25


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; --nbval-cell-timeout is nbval's own, and hard here."""
    group = parser.getgroup("nbval")
    group.addoption(
        "--nbval-wall-timeout",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="Wall clock for a whole notebook.",
    )
    group.addoption(
        "--nbval-out",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="Write each executed notebook and its report here.",
    )


@dataclass
class Course:
    """State of one notebook: its deadline, the reason of its failure, the outcome of each cell."""

    ends: float
    broken: str = ""
    cell_ends: float = 0.0
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)
    notebook: Any = None


_course = pytest.StashKey[Course]()


def _course_of(file: IPyNbFile) -> Course:
    if _course not in file.stash:
        wall = file.config.getoption("nbval_wall_timeout")
        file.stash[_course] = Course(time.monotonic() + wall, notebook=copy.deepcopy(file.nb))
    return file.stash[_course]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Fail a cell after one that broke the notebook, without running it."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    course = _course_of(item.parent)
    item.parent.timed_out = False  # else nbval marks the cell as one that may fail
    if course.broken:
        pytest.fail(f"not run: {course.broken}", pytrace=False)
    result = yield
    _bound(item.parent, course)
    return result


def _bound(file: IPyNbFile, course: Course) -> None:
    """End every wait for the kernel at the cell's limit, or when the kernel has died."""
    kernel = file.kernel
    if kernel is None or hasattr(kernel, "plain_get_message"):
        return
    kernel.plain_get_message = kernel.get_message

    def get_message(stream: str, timeout: float | None = None) -> Any:
        ends = course.cell_ends + (GRACE_S if stream == "iopub" else 0)
        if timeout is not None:
            ends = min(ends, time.monotonic() + timeout)
        while True:
            left = ends - time.monotonic()
            if left <= 0:
                raise Empty
            try:
                return kernel.plain_get_message(stream, timeout=min(left, SLICE_S))
            except Empty:
                if not kernel.is_alive():
                    course.broken = course.broken or "the kernel has died"
                    raise

    kernel.get_message = get_message


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a cell with a hard limit; a late result is a failure, even if nbval passes it."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    course = _course_of(item.parent)
    option, now = item.config.option, time.monotonic()
    limit = min(float(option.nbval_cell_timeout), course.ends - now)
    if limit <= 0:
        _break(item, course, "the notebook's wall clock had run out")
    before, option.nbval_cell_timeout = option.nbval_cell_timeout, limit
    course.cell_ends = now + limit
    try:
        result = yield
    except BaseException:
        if time.monotonic() - now < limit and not course.broken:
            raise
        traceback = True
    else:
        traceback = False
        if time.monotonic() - now < limit and not item.parent.timed_out:
            return result
    finally:
        option.nbval_cell_timeout = before
    if time.monotonic() - now >= limit or not traceback:
        what = "the notebook's wall clock ran out" if limit < before else f"limit {limit:g} s"
        _break(item, course, f"{_id(item)} did not end in time ({what})")
    _break(item, course, f"{_id(item)} ended its kernel")


def _break(item: IPyNbCell, course: Course, reason: str) -> None:
    course.broken = reason
    if item.parent.kernel is not None:
        end_kernel(item.parent.kernel)
    pytest.fail(reason, pytrace=False)


def _id(item: IPyNbCell) -> str:
    return f"cell {item.cell.get('id', item.cell_num)}"


def end_kernel(kernel: Any) -> None:
    """Kill a kernel with its process group and every child process."""
    manager = getattr(kernel, "km", None)
    process = getattr(getattr(manager, "provisioner", None), "process", None)
    if process is None:
        return
    try:
        top = psutil.Process(process.pid)
        family = [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        family = []
    if os.name == "posix":
        try:
            # A kernel leads its own process group; never kill the group of this process.
            if os.getpgid(process.pid) != os.getpgid(0):
                os.killpg(os.getpgid(process.pid), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=GRACE_S)
    with contextlib.suppress(Exception):
        kernel.stop()  # of a dead kernel: closes the channels, removes the connection file


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the outcome of a cell."""
    report = yield
    if isinstance(item, IPyNbCell):
        course = _course_of(item.parent)
        _note(item, course, report)
    return report


def _note(item: IPyNbCell, course: Course, report: pytest.TestReport) -> None:
    key = str(item.cell.get("id", item.cell_num))
    entry = course.cells.setdefault(key, {"id": key, "status": "passed", "seconds": 0.0})
    entry["seconds"] = round(entry["seconds"] + report.duration, 3)
    if report.failed or (report.skipped and entry["status"] == "passed"):
        late = course.broken.startswith(f"{_id(item)} did not")
        not_run = report.when == "setup" and course.broken
        failed = "not_run" if not_run else "timeout" if late else "failed"
        entry["status"] = failed if report.failed else "skipped"
        entry["message"] = str(report.longrepr)[-4000:]
    if report.when == "call" and item.test_outputs is not None:
        for cell in course.notebook.cells:
            if str(cell.get("id")) == key:
                cell.outputs = [_plain(output) for output in item.test_outputs]


def _plain(output: Any) -> Any:
    plain = copy.deepcopy(output)
    if plain.get("output_type") == "execute_result":
        plain.setdefault("execution_count", None)
    return plain


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Write the report and kill the kernel's processes after a notebook's last cell."""
    if isinstance(item, IPyNbCell) and (nextitem is None or nextitem.parent is not item.parent):
        _write(item.parent, _course_of(item.parent))
        if item.parent.kernel is not None:
            end_kernel(item.parent.kernel)
    return (yield)


def _write(file: IPyNbFile, course: Course) -> None:
    folder: Path | None = file.config.getoption("nbval_out")
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    cells = list(course.cells.values())
    report = {
        "notebook": file.path.name,
        "ok": all(cell["status"] in ("passed", "skipped") for cell in cells),
        "seconds": round(sum(cell["seconds"] for cell in cells), 3),
        "broken": course.broken,
        "cells": cells,
    }
    target = folder / f"{file.path.stem}.json"
    target.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    nbformat.write(course.notebook, folder / file.path.name)
