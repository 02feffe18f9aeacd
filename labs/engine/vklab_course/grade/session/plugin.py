"""Grade one notebook under nbval: `pytest -p vklab_course.grade.session.plugin --nbval-lax ...`.

nbval executes the cells; nothing is compared. Check cells are not executed: the judge runs here,
and its results go to the descriptor that the parent process has opened.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

from vklab_course.definition.draw import fingerprint
from vklab_course.definition.exercise import exercises_of
from vklab_course.grade.sandbox import command as sandbox
from vklab_course.grade.sandbox.limits import Limits
from vklab_course.grade.session.marks import entry
from vklab_course.grade.session.run import Job, Run

__all__ = [
    "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure",
    "pytest_sessionfinish",
]  # fmt: skip

_run = pytest.StashKey[Run]()
_began = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the descriptors of the job and of the results."""
    group = parser.getgroup("vklab")
    group.addoption("--vklab-job", type=int, help="Descriptor with the job as JSON.")
    group.addoption("--vklab-result", type=int, help="Descriptor for the results.")


def pytest_configure(config: pytest.Config) -> None:
    """Read the job, and make the sandbox that it names."""
    with os.fdopen(config.getoption("vklab_job"), "r", encoding="utf-8") as file:
        file.seek(0)
        told = json.load(file)
    os.set_inheritable(config.getoption("vklab_result"), False)
    definitions = exercises_of(told["lab"], told["variants"])
    wanted = told["exercises"] or list(definitions)
    config.stash[_began] = time.monotonic()
    config.stash[_run] = Run(
        Job(
            exercises={key: definitions[key] for key in wanted},
            secret=told["secret"],
            sandbox=sandbox.from_settings(told["sandbox"], Limits(**told["limits"])),
            private=Path(told["private"]),
            skipped=told["skipped"],
            times=told["times"],
            wall_seconds=told["wall_seconds"],
            cell_seconds=told["cell_seconds"],
        )
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out demos; judge instead of executing check cells."""
    run = config.stash[_run]
    kept: list[pytest.Item] = []
    for item in items:
        if not isinstance(item, IPyNbCell):
            continue
        about = item.cell.metadata.get("vklab", {})
        if about.get("role") == "demo":
            continue
        # Comments such as NBVAL_SKIP in a cell decide nothing here.
        item.options.clear()
        item.options.update(check=False, skip=False, check_exception=False)
        _replace(item, run, is_check=about.get("role") == "check")
        kept.append(item)
    items[:] = kept


def _replace(item: Any, run: Run, is_check: bool) -> None:
    """Let a cell, and the file that it belongs to, use the sandboxed kernel."""
    file: IPyNbFile = item.parent
    file.setup = lambda: None
    file.teardown = run.end
    by_nbval, about = item.runtest, item.cell.metadata.get("vklab", {})

    def execute() -> None:
        file.kernel = run.kernel
        by_nbval()

    def runtest() -> None:
        file.timed_out = False
        if is_check:
            run.check(item.cell)
            judged = str(about["id"])
            if judged in run.results:  # a session that is killed later keeps this one
                _write(item.config, {"judged": {judged: run.results[judged]}})
        else:
            run.execute(item.cell, execute)

    item.setup = lambda: None
    item.runtest = runtest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the results, with an entry for each exercise that had no check cell."""
    run, config = session.config.stash[_run], session.config
    run.end()
    job = run.job
    for key, exercise in job.exercises.items():
        if exercise.marked and key not in run.results:
            run.results[key] = entry(exercise, "missing", "the notebook has no cell for it")
    results = {
        "exercises": run.results,
        "cells": run.cells,
        "broken": "",
        "variant": {key: exercise.variant for key, exercise in job.exercises.items()},
        "seed_fingerprint": fingerprint(job.secret) if job.secret else "",
        "sandbox": job.sandbox.describe(),
        "kernels": run.starts,
        "seconds": round(time.monotonic() - config.stash[_began], 3),
        "cpu_seconds": round(run.cpu_seconds, 3),
    }
    job.sandbox.closed()
    _write(config, results)


def _write(config: pytest.Config, told: Mapping[str, Any]) -> None:
    """Write one line for the parent process, which reads as many as there are at the end."""
    with open(config.getoption("vklab_result"), "a", encoding="utf-8", closefd=False) as file:
        file.write(json.dumps(told) + "\n")
