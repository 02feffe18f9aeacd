"""run_session: grade one notebook in a process of its own, and return its results.

The job goes to that process in a file without a name, and the results come back in another; neither
can be reached from the sandbox. The notebook is the one rebuilt from the release. What the process
leaves when it is killed is removed here: its sockets, its cgroups or containers. The marks so far
are read.
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
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from vklab_course import places
from vklab_course.grade.sandbox import package
from vklab_course.grade.sandbox.base import Sandbox
from vklab_course.grade.sandbox.limits import kill_tree
from vklab_course.places import labs_folder

__all__ = ["run_session"]

START_S, POLL_S = 60.0, 0.1
# Of the grader's process, which reads what a kernel sends: a flood ends this session only. Memory
# in use is looked at from here: a thread of ZeroMQ receives a message's parts without an end.
DATA_BYTES, FILE_BYTES, MEMORY_BYTES = 12 << 30, 256 << 20, 1536 << 20
# Below the session's temporary folder a kernel makes its own with sockets; see kernel.py.
TOP_BYTES = 60


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
    top = tempfile.gettempdir()
    temporary = tempfile.mkdtemp(prefix="vk-", dir=top if len(top) < TOP_BYTES else "/tmp")
    began = time.monotonic()
    told = {
        "lab": lab,
        "secret": secret,
        "variants": dict(variants or {}),
        "exercises": list(exercises),
        "skipped": dict(skipped or {}),
        "times": dict(times or {}),
        "wall_seconds": wall_seconds,
        "cell_seconds": cell_seconds,
        "private": str(private),
        "sandbox": sandbox.settings(),
        "limits": dataclasses.asdict(sandbox.limits),
    }
    try:
        folder = private / "notebook"
        folder.mkdir()
        shutil.copyfile(notebook, folder / "submission.ipynb")
        results, kept, why = _graded(told, sandbox, folder, temporary, wall_seconds + START_S)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(private, ignore_errors=True)
    seconds = round(time.monotonic() - began, 3)
    return results or _ended(kept, *why, {"sandbox": sandbox.describe(), "seconds": seconds})


def _graded(
    told: Mapping[str, Any], sandbox: Sandbox, folder: Path, temporary: str, seconds: float
) -> tuple[dict[str, Any] | None, dict[str, Any], tuple[str, str]]:
    """Return the results, or the entries of the exercises judged so far, how and why it ended."""
    with (
        tempfile.TemporaryFile() as job,
        tempfile.TemporaryFile() as result,
        tempfile.TemporaryFile() as log,
    ):
        job.write(json.dumps(told).encode())
        job.flush()
        command = [
            *_prefix(),
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            os.devnull,
            "--rootdir",
            str(folder),
            "--noconftest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:faulthandler",
            "-p",
            "vklab_course.grade.session.start",
            "-p",
            "nbval.plugin",
            "-p",
            "vklab_course.grade.session.plugin",
            "--nbval-lax",
            "--tb=no",
            "--vklab-job",
            str(job.fileno()),
            "--vklab-result",
            str(result.fileno()),
            str(folder / "submission.ipynb"),
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**_environment(), "TMPDIR": temporary},
            pass_fds=(job.fileno(), result.fileno()),
            start_new_session=True,
        )
        try:
            why = _wait(process, seconds)
        finally:
            kill_tree(process.pid)
            process.wait()
            sandbox.swept(process.pid)
        result.seek(0)
        results, kept = _read(result.read())
        log.seek(0)
        said = log.read()[-2000:].decode("utf-8", "replace")
        said = f"it ended with code {process.returncode}\n{said}"
        return results, kept, why or ("error", said)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[str, str] | None:
    """Await a session's process; return the status and the reason to kill it; None at its end."""
    ends = time.monotonic() + seconds
    while True:
        try:
            process.wait(POLL_S)
            return None
        except subprocess.TimeoutExpired:
            used = 0
            with contextlib.suppress(psutil.Error):
                used = psutil.Process(process.pid).memory_info().rss
        if used > MEMORY_BYTES:
            return "out_of_memory", (
                f"it was ended at {used >> 20} MiB of memory, more than "
                f"{MEMORY_BYTES >> 20}: a kernel may have sent an endless "
                "message"
            )
        if time.monotonic() > ends:
            return "timeout", f"it did not end within {seconds:g} s"


def _read(written: bytes) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the results if the session has written them, and the entries of judged exercises.

    Each line is a dictionary; the last one may be cut where the session was killed.
    """
    kept: dict[str, Any] = {}
    for line in written.splitlines():
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if "exercises" in told:
                return told, kept
            kept |= told["judged"]
    return None, kept


def _prefix() -> list[str]:
    """Return what limits the session's process, and ends it when its parent is gone."""
    prefix = []
    if shutil.which("setpriv"):
        prefix += ["setpriv", "--pdeathsig", "KILL", "--"]
    if shutil.which("prlimit"):
        prefix += ["prlimit", f"--data={DATA_BYTES}", f"--fsize={FILE_BYTES}", "--core=0", "--"]
    return prefix


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "DOCKER_HOST")
        or name.startswith("VKLAB_")
    }
    in_tree = {"PYTHONPATH": places.search_path(False)} if package.in_source_tree() else {}
    return {
        **kept,
        **in_tree,
        "VKLAB_LABS": str(labs_folder()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def _ended(
    kept: Mapping[str, Any], status: str, why: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the results of a session that was ended: interrupted, unless nothing was begun.

    A session that ended by itself before its first mark is the grader's failure.
    """
    if status == "error" and not kept:
        return {**facts, "exercises": {}, "broken": f"the session failed: {why}"}
    line = why.partition("\n")[0]  # without what the grader printed
    return {**facts, "exercises": dict(kept), "broken": "", "interrupted": line, "ended": status}
