"""Run Python code in a process of its own, as tests of what survives or ends a process need."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from stand_ins import loaded_python
from support.graphs.small_models import ROOT
from support.runs.waits import LIMIT_S, until

# One line with its end: the lines of the code keep their numbers, but for one.
HOST_WARNING = re.compile(r"^[^\n]*: HostWarning: [^\n]*\n(?:  [^\n]*\n)?", re.M)
# The first lines of a script that this Python runs, also from a folder with spaces.
SCRIPT = f'#!/bin/sh\n"exec" "{sys.executable}" "$0" "$@"'
CHECKED = "from support.checks import plan_checks; plan_checks.install_in_child()\n"


def python(code: str, *arguments: object, **environment: str) -> str:
    """Return what the code printed; fail if it did not end well or wrote to stderr.

    Warnings of nodes on the host may stand there.
    """
    done = run(code, *arguments, **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    others = HOST_WARNING.sub("", done.stderr)
    assert not others, others
    return done.stdout


def run(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the code, which can import vklab and what lies in tests/.

    Its plans are checked, but not with PLAN_CHECKS="off" where that would count as time. With
    PYTHON_SERVER="" a fresh interpreter runs it, with no module loaded, and not a fork.
    """
    if environment.get("PLAN_CHECKS") != "off":
        code = CHECKED + code
    words = ["-c", code, *map(str, arguments)]
    is_fork = environment.get(loaded_python.PLAIN) != ""
    return subprocess.run(
        loaded_python.command(words) if is_fork else [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=ROOT,
        env=env(**environment),
    )


def env(**changes: str) -> dict[str, str]:
    """Return an environment in which vklab and the helpers of the tests can be imported."""
    return {**os.environ, "PYTHONPATH": search_path(ROOT, ROOT / "tests"), **changes}


def search_path(*folders: object) -> str:
    """Return PYTHONPATH of a child: some folders, then those of this process."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*map(str, folders), *filter(None, inherited)])


def wait_until_gone(process_id: int) -> None:
    """Fail unless a process, of which nobody waits for the end, ends."""
    until(lambda: not is_running(process_id), f"process {process_id} is still there")


def is_running(process_id: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
