"""Project environment `.venv`: its packages, its state file, and the reasons to rebuild it.

Decides the installers' command lines, and whether an existing .venv is complete; steps.py runs
them. Visited by lab 00.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vklab.apps.bootstrap import steps, system

# What is installed from a checkout: the folder of each project, and where its extras are declared.
PROJECTS = {".": "pyproject.toml", "./labs": "labs/pyproject.toml"}
SOURCES = (*PROJECTS.values(), "constraints.txt")
STATE_FILE = "vklab-setup.json"
LOG_FILE = "vklab-setup.log"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INSTALL_LIMIT_S = 3600
# Installs in a tenth of pip's time.
UV = "uv>=0.9"


def venv_python(root: Path) -> Path:
    """Return the path of the Python in the project's environment, whether it exists or not."""
    inside = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    return root / ".venv" / inside


def environment_key(root: Path) -> str:
    """Return a digest of the environment's sources; a changed digest means to install again."""
    digest = hashlib.sha256(str(root).encode())
    for name in SOURCES:
        digest.update(name.encode() + (root / name).read_bytes())
    return digest.hexdigest()[:16]


def read_state(root: Path) -> dict[str, Any]:
    """Return the state that the last set-up wrote into .venv, or {} if it cannot be read."""
    try:
        state = json.loads((root / ".venv" / STATE_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def write_state(root: Path, state: dict[str, Any]) -> None:
    """Replace the state file atomically, so that a crash leaves the old state or the new one."""
    path = root / ".venv" / STATE_FILE
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(state, indent=1) + "\n", "utf-8")
    fresh.replace(path)


def is_ready(state: dict[str, Any], extras: Sequence[str], root: Path) -> bool:
    """Tell whether .venv holds these extras in the versions of today's constraints.txt.

    Args:
        state: content of the state file, as `read_state` returns it.
        extras: names of optional dependencies of both projects.
        root: the project's folder.
    """
    return (
        state.get("status") == "ready"
        and state.get("key") == environment_key(root)
        and set(extras) <= set(state.get("extras", ()))
        and rebuild_reason(state, root) is None
    )


def rebuild_reason(state: dict[str, Any], root: Path) -> str | None:
    """Return the reason to rebuild .venv, or None if it is complete or can be completed."""
    venv = root / ".venv"
    if not (venv / "pyvenv.cfg").exists():
        return "it is not a Python environment"
    if not venv_python(root).exists():
        return "its Python is gone"
    if state.get("status") == "installing":
        return "an earlier set-up was interrupted"
    if state.get("root", str(root)) != str(root):
        return "the folder was moved"
    made_for = _match(r"(?m)^version(?:_info)? *= *(3\.\d+)", (venv / "pyvenv.cfg").read_text())
    runs = _match(r"python(3\.\d+)$", os.path.realpath(venv_python(root)))
    if made_for and runs and made_for != runs:
        return f"it was made for Python {made_for}, and its Python is {runs} now"
    return None


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""


def required_distributions(root: Path, extras: Sequence[str]) -> tuple[str, ...]:
    """Return the distributions that both projects and the extras require on every platform."""
    projects = [_project(root, file) for file in PROJECTS.values()]
    optional = {
        extra: lines
        for project in projects
        for extra, lines in project.get("optional-dependencies", {}).items()
    }
    own = [project["name"] for project in projects]
    names: list[str] = []
    waiting = [line for project in projects for line in project["dependencies"]]
    waiting += [line for extra in extras for line in optional[extra]]
    while waiting:
        requirement = waiting.pop(0)
        name = _match(r"^([\w.-]+)", requirement)
        if name in own:
            inner = filter(None, _match(r"\[(.*)\]", requirement).split(","))
            waiting += [line for extra in inner for line in optional[extra.strip()]]
        elif ";" not in requirement and name not in names:
            names.append(name)
    return (*own[1:], *names)  # vklab itself runs from the checkout


def _project(root: Path, file: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((root / file).read_text("utf-8"))["project"]
    return project


def editable_arguments(root: Path, extras: Sequence[str]) -> list[str]:
    """Return pip's arguments that install both projects, each with those extras that it has."""
    arguments = []
    for folder, file in PROJECTS.items():
        own = [name for name in extras if name in _project(root, file)["optional-dependencies"]]
        arguments += ["--editable", f"{folder}[{','.join(own)}]" if own else folder]
    return arguments


def torch_pin(constraints_text: str) -> str:
    """Return the version of torch that constraints.txt pins."""
    version = _match(r"(?m)^torch==([\w.]+)", constraints_text)
    if not version:
        raise steps.SetupStopped("constraints.txt has no line torch==VERSION; restore it")
    return version


def torch_alternatives(version: str, machine: system.Machine) -> tuple[list[str], ...]:
    """Return the arguments of an installer to try in turn until one has installed torch.

    On Linux the default build brings gigabytes of CUDA packages. Without an NVIDIA GPU the CPU
    build comes first: from the user's own indexes, then from PyTorch's.

    Args:
        version: version of torch, as constraints.txt pins it.
        machine: this machine's system and GPU.
    """
    default, cpu = f"torch=={version}", f"torch=={version}+cpu"
    if machine.system != "Linux" or machine.has_nvidia:
        return ([default],)
    return [cpu], ["--extra-index-url", TORCH_CPU_INDEX, cpu], [default]


def pip_command(python: str, arguments: Sequence[str]) -> list[str]:
    """Return the command by which pip installs.

    Args:
        python: path of the Python to install for.
        arguments: requirements, after options.
    """
    # -I: neither PYTHONPATH nor the user's own packages may leak into the environment.
    pip = [python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    hurry = ["--retries", "1", "--timeout", "15"] if TORCH_CPU_INDEX in arguments else []
    return [*pip, "--no-compile", "--constraint", "constraints.txt", *hurry, *arguments]


def uv_command(python: str, arguments: Sequence[str]) -> list[str]:
    """Return the command by which uv installs: in a tenth of pip's time.

    Args:
        python: path of the Python to install for; uv lies beside it.
        arguments: requirements, after options that pip knows as well.
    """
    uv = [str(Path(python).with_name("uv")), "pip", "install", "--python", python]
    same = ["--system-certs", "--index-strategy", "unsafe-best-match"]  # as pip does
    return [*uv, *same, "--constraint", "constraints.txt", *arguments]


def pip_indexes(config: str) -> list[str]:
    """Return the options by which uv uses the indexes of pip's configuration.

    Args:
        config: output of `pip config list`: a line `section.option='value'` for each option.
    """
    options = []
    for option, text in re.findall(r"^\S+\.([\w-]+)=(.*)$", config, re.M):
        if option in ("index-url", "extra-index-url", "find-links"):
            options += [
                part for url in ast.literal_eval(text).split() for part in (f"--{option}", url)
            ]
    return options


def build(extras: Sequence[str], root: Path, declined: set[str]) -> None:
    """Make or complete .venv; the caller holds the lock.

    The state file says `installing` meanwhile, so that a later run rebuilds an environment whose
    set-up was killed. Raises SetupStopped when a command fails.

    Args:
        extras: names of optional dependencies of both projects to install.
        root: the project's folder.
        declined: optional system packages to record as not installable.
    """
    before = read_state(root)
    venv = root / ".venv"
    wanted = sorted({*extras, *before.get("extras", ())})
    reason = rebuild_reason(before, root)
    if reason and venv.exists():
        steps.announce(f"rebuilding .venv: {reason}")
        shutil.rmtree(venv)
    venv.mkdir(exist_ok=True)
    state = {"key": environment_key(root), "root": str(root), "extras": wanted}
    state["declined"] = sorted(declined)
    write_state(root, {**state, "status": "installing"})
    try:
        if reason:
            _create(venv, root)
        version = torch_pin((root / "constraints.txt").read_text("utf-8"))
        alternatives = torch_alternatives(version, system.inspect_machine())
        cpu = " (CPU build)" if len(alternatives) > 1 else ""
        _install(f"torch {version}{cpu}", alternatives, root)
        _install(
            f"vklab and its course [{','.join(wanted)}], and the packages they need",
            [editable_arguments(root, wanted)],
            root,
        )
    except steps.SetupStopped as stopped:
        if stopped.clean:
            write_state(root, {**state, "status": "failed"})
        raise
    write_state(root, {**state, "status": "ready"})
    steps.announce("the environment .venv is ready")


def _create(venv: Path, root: Path) -> None:
    # The base Python: an environment that rebuilds itself would delete its own interpreter.
    base = getattr(sys, "_base_executable", None) or sys.executable
    steps.announce(f"creating .venv with Python {sys.version.split()[0]}")
    _step("creating .venv", [base, "-I", "-m", "venv", str(venv)], root)
    # An index without uv is no fault: the pip that comes with Python installs the same packages.
    steps.run_logged(
        pip_command(str(venv_python(root)), [UV]),
        cwd=root,
        log=venv / LOG_FILE,
        limit_s=INSTALL_LIMIT_S,
    )


def _install(what: str, alternatives: Sequence[list[str]], root: Path) -> None:
    """Install the first alternative that can be: by uv, or else by pip, whose error is told."""
    steps.announce(f"installing {what}")
    python, log = str(venv_python(root)), root / ".venv" / LOG_FILE
    config = steps.run_logged([python, "-I", "-m", "pip", "config", "list"], limit_s=60)
    # uv does not read pip's configuration: it is told the indexes.
    for command, indexes in ((uv_command, pip_indexes(config.output)), (pip_command, [])):
        for arguments in alternatives:
            if arguments == alternatives[-1] != alternatives[0]:
                steps.announce(
                    "no index has a CPU build of torch; installing the default one (with CUDA)"
                )
            last = command(python, [*indexes, *arguments])
            result = steps.run_logged(last, cwd=root, log=log, limit_s=INSTALL_LIMIT_S)
            if result.returncode == 0:
                return
    raise _stopped(f"installing {what}", last, result, log)


def _step(title: str, command: list[str], root: Path) -> None:
    log = root / ".venv" / LOG_FILE
    result = steps.run_logged(command, cwd=root, log=log, limit_s=INSTALL_LIMIT_S)
    if result.returncode != 0:
        raise _stopped(title, command, result, log)


def _stopped(
    title: str, command: list[str], result: steps.StepResult, log: Path
) -> steps.SetupStopped:
    problem = f"{title} failed (exit code {result.returncode})"
    where = f"  command: {' '.join(command)}\n  log: {log}"
    if re.search(r"NewConnectionError|Timeout|ProxyError|SSLError", result.output):
        # Without an index pip's own last lines mislead: they report a conflict or no such version.
        text = f"{problem}: the package index cannot be reached; connect, then run this again"
        return steps.SetupStopped(f"{text}\n{where}", clean=result.returncode > 0)
    text = f"{problem}; correct the error in its last lines, then run this again"
    return steps.SetupStopped(f"{text}\n{where}\n{result.tail}", clean=result.returncode > 0)
