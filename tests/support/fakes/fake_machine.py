"""Machines and environments that are not there: what the tests of the set-up share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from vklab.apps.bootstrap import choose, environment, steps, system

ROOT = Path(__file__).resolve().parents[3]
TOOLS = frozenset({"validation", "glsl", "spirv-val", "swiftshader", "bubblewrap"})
READY = system.Machine(
    distribution="debian",
    installers=frozenset({"apt-get"}),
    has_venv=True,
    has_loader=True,
    drivers=("lvp_icd.json",),
    tools=TOOLS,
)
BARE = system.Machine(distribution="debian", installers=frozenset({"apt-get"}))


def names(machine: system.Machine, command: str) -> list[str]:
    """Return the names of the system packages that a command lacks."""
    return [package.name for package in system.missing_packages(machine, command)]


def record_commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record commands instead of running them, as root; those that name `bad` fail."""
    commands: list[list[str]] = []

    def record(command: list[str], **_options: object) -> steps.StepResult:
        commands.append(list(command))
        return steps.StepResult(100 if "bad" in " ".join(command) else 0, "E: no\n")

    monkeypatch.setattr(steps, "run_logged", record)
    monkeypatch.setattr(choose, "_can_sudo", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    monkeypatch.setattr(system, "inspect_machine", lambda: READY)
    return commands


def project(folder: Path) -> Path:
    """Make a folder look like a checkout."""
    (folder / "labs").mkdir(exist_ok=True)
    for name in environment.SOURCES:
        (folder / name).write_text((ROOT / name).read_text())
    return folder


def make_venv(folder: Path, **state: object) -> dict[str, object]:
    """Fake a .venv that a set-up has finished; return its state."""
    python = environment.venv_python(folder)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (folder / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    whole = {"status": "ready", "key": environment.environment_key(folder), "extras": ["labs"]}
    environment.write_state(folder, {**whole, "root": str(folder), **state})
    return environment.read_state(folder)
