"""run_session: grade one notebook in a process of its own, and return its results.

The job goes to that process in a file without a name, and the results come back in another; neither
can be reached from the sandbox. The notebook is the one rebuilt from the release.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vklab.course.definition.exercise import exercises_of
from vklab.course.grade.sandbox.command import Sandbox
from vklab.course.grade.sandbox.limits import kill_tree
from vklab.course.grade.session.marks import entry
from vklab.course.places import PROJECT, labs_folder

__all__ = ["run_session"]

START_S = 60.0
# Of the grader's process, which reads what a kernel sends: a flood ends this session only.
DATA_BYTES, FILE_BYTES = 12 << 30, 256 << 20


def run_session(
    notebook: Path,
    lab: str,
    *,
    sandbox: Sandbox,
    secret: str = "",
    variants: Mapping[str, int] | None = None,
    exercises: Sequence[str] = (),
    skipped: Mapping[str, str] | None = None,
    times: Mapping[str, float] | None = None,
    wall_seconds: float = 900.0,
    cell_seconds: float = 60.0,
) -> dict[str, Any]:
    """Grade a notebook. Nothing in the notebook can raise here: a problem is in the results.

    Args:
        notebook: the notebook as rebuilt from the release, with the cells of the submission.
        lab: number of the lab, "04"; its definitions are in the labs' folder.
        sandbox: where the submission's code runs.
        secret: seeds the cases; "" for the public ones.
        variants: variant of each exercise.
        exercises: ids to grade; default: all of the lab.
        skipped: reasons by id of exercises that are not graded on this machine.
        times: processor seconds of the reference's answers by id.
        wall_seconds: time limit of the session.
        cell_seconds: processor time of one cell.
    """
    private = Path(tempfile.mkdtemp(prefix="vklab-session-"))
    told = {
        "lab": lab, "secret": secret, "variants": dict(variants or {}),
        "exercises": list(exercises), "skipped": dict(skipped or {}), "times": dict(times or {}),
        "wall_seconds": wall_seconds, "cell_seconds": cell_seconds, "private": str(private),
        "sandbox": sandbox.settings(), "limits": dataclasses.asdict(sandbox.limits),
    }  # fmt: skip
    try:
        folder = private / "notebook"
        folder.mkdir()
        shutil.copyfile(notebook, folder / "submission.ipynb")
        results, why = _graded(told, folder, wall_seconds + START_S)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return results or _broken(lab, variants or {}, exercises, sandbox, why)


def _graded(
    told: Mapping[str, Any], folder: Path, seconds: float
) -> tuple[dict[str, Any] | None, str]:
    with tempfile.TemporaryFile() as job, tempfile.TemporaryFile() as result, \
         tempfile.TemporaryFile() as log:  # fmt: skip
        job.write(json.dumps(told).encode())
        job.flush()
        command = [*_prefix(), sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir",
                   str(folder), "--noconftest", "-p", "no:cacheprovider", "-p", "no:faulthandler",
                   "-p", "vklab.course.grade.session.start", "-p", "nbval.plugin",
                   "-p", "vklab.course.grade.session.plugin", "--nbval-lax", "--tb=no",
                   "--vklab-job", str(job.fileno()), "--vklab-result",
                   str(result.fileno()), str(folder / "submission.ipynb")]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
            env=_environment(), pass_fds=(job.fileno(), result.fileno()), start_new_session=True,
        )  # fmt: skip
        why = ""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            why = f"the session did not end within {seconds:g} s"
        finally:
            kill_tree(process.pid)
            process.wait()
        result.seek(0)
        with contextlib.suppress(ValueError):
            return json.loads(result.read()), ""
        log.seek(0)
        said = log.read()[-2000:].decode("utf-8", "replace")
        return None, why or f"the session ended with code {process.returncode}: {said}"


def _prefix() -> list[str]:
    """Return what limits the session's process, and ends it when its parent is gone."""
    prefix = []
    if shutil.which("setpriv"):
        prefix += ["setpriv", "--pdeathsig", "KILL", "--"]
    if shutil.which("prlimit"):
        prefix += ["prlimit", f"--data={DATA_BYTES}", f"--fsize={FILE_BYTES}", "--core=0", "--"]
    return prefix


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items()
            if name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "DOCKER_HOST")
            or name.startswith("VKLAB_")}  # fmt: skip
    in_tree = {"PYTHONPATH": str(PROJECT)} if (PROJECT / "pyproject.toml").is_file() else {}
    return {**kept, **in_tree, "VKLAB_LABS": str(labs_folder()), "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # fmt: skip


def _broken(
    lab: str, variants: Mapping[str, int], exercises: Sequence[str], sandbox: Sandbox, why: str
) -> dict[str, Any]:
    """Return the results of a session that ended without any: every exercise is an error."""
    found = exercises_of(lab, variants)
    said = "the submission could not be graded; ask your instructor"
    entries = {key: {**entry(one, "error", said), "seconds": 0.0} for key, one in found.items()
               if one.marked and (not exercises or key in exercises)}  # fmt: skip
    return {"exercises": entries, "cells": {}, "broken": why, "sandbox": sandbox.describe(),
            "variant": dict(variants), "seed_fingerprint": "", "seconds": 0.0,
            "cpu_seconds": 0.0, "kernels": 0}  # fmt: skip
