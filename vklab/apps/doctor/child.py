"""Query the drivers in a child process: a crash or a hang becomes an answer.

Decides how the end of a child is reported; the child runs `probe`. Visited by lab 00.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab.base import endings

# Operands of the probe's addition: exact in every float format, so one bit off is wrong.
LEFT, RIGHT = (1.5, -2.0, 0.25), (0.5, 3.0, -1.0)
EXPECTED = [2.0, 1.0, -0.75]
KILL_LIMIT_S = 5.0
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True)
class Answer:
    """Answer of a child: `facts`, or the `problem` in words and perhaps a line to repair it."""

    facts: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    repair: str = ""


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a child that answers one question."""
    return [sys.executable, "-m", "vklab.apps.doctor.probe", *arguments]


def ask(
    arguments: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None
) -> Answer:
    """Run a child and return its answer; a crash or a hang is an answer, not an exception.

    Args:
        arguments: the question: `list`, or `run INDEX`.
        limit_s: seconds after which the child is killed.
        environment: variables to set in the child.
    """
    path = os.pathsep.join(filter(None, (_PACKAGE_PARENT, os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, **(environment or {}), "PYTHONPATH": path}
    try:
        process = subprocess.Popen(
            command(arguments),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return Answer(problem=f"no child process can be started: {error}")
    try:
        said, complained = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            process.communicate(timeout=KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            # A process inside a hung kernel driver cannot be killed; do not wait for its end.
            return Answer(problem=f"hung for {limit_s:g} s and cannot even be killed")
        return Answer(problem=f"did not answer in {limit_s:g} s and was stopped")
    if process.returncode != 0:
        lines = [line.strip() for line in complained.splitlines() if line.strip()]
        return Answer(problem=endings.words(process.returncode, lines[-1][:300] if lines else ""))
    return _parse(said)


def _parse(said: str) -> Answer:
    # The last line only: some drivers print greetings on stdout.
    lines = [line for line in said.splitlines() if line.strip()]
    try:
        facts = json.loads(lines[-1])
    except (IndexError, ValueError):
        return Answer(problem=f"answered no JSON: {said.strip()[-200:]!r}")
    if not isinstance(facts, dict):
        return Answer(problem=f"answered {facts!r}, not a JSON object")
    return Answer(facts, facts.get("error", ""), facts.get("repair", ""))
