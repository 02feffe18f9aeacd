"""Choice of the Python that runs a vklab command, and its set-up for `lab` and `test`.

Decides between this interpreter, the user's active environment and the project's .venv.
Visited by lab 00.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence, Set
from pathlib import Path

from vklab.apps.bootstrap import environment, steps, system

_TESTS = ("grade", "labs", "test")
# Names of extras of both projects, vklab and its course.
EXTRAS = {"lab": ("labs",), "test": _TESTS, "test --all": _TESTS}
CORE_MODULES = ("numpy", "onnx", "typer", "vulkan")
GUARD = "VKLAB_INSIDE_ENVIRONMENT"
APT_LIMIT_S = 1800


def choose_python(arguments: Sequence[str], root: Path) -> Path | None:
    """Return the Python to run a command with, or None for this one; set up for `lab` and `test`.

    Raises SetupStopped if packages are missing and the command may not install them.
    """
    # Removed at once: a vklab that this process starts must decide anew.
    inside = os.environ.pop(GUARD, "")
    missing = [name for name in CORE_MODULES if importlib.util.find_spec(name) is None]
    if inside or os.environ.get("VKLAB_NO_BOOTSTRAP") == "1":
        if missing:
            raise steps.SetupStopped(_missing_text(missing, bool(inside), root))
        return None
    command = arguments[0] if arguments else ""
    asks_for_help = any(argument in ("-h", "--help") for argument in arguments)
    is_checkout = all((root / name).exists() for name in environment.SOURCES)
    if command in EXTRAS and is_checkout and not asks_for_help:
        if command == "test" and any(item.startswith(("--all", "--shard")) for item in arguments):
            command = "test --all"
        return ensure_environment(command, root)
    if not missing:
        return None
    python = environment.venv_python(root)
    if python.exists() and Path(sys.prefix).resolve() != (root / ".venv").resolve():
        return python
    raise steps.SetupStopped(
        f"{sys.executable} has no package {', '.join(missing)}; run `python3 -m vklab lab` first "
        "(it installs missing packages into .venv)"
    )


def _missing_text(missing: Sequence[str], inside: bool, root: Path) -> str:
    text = f"{sys.executable} cannot import {', '.join(missing)}"
    if inside:
        return f"{text} although .venv was set up; delete {root / '.venv'} and run this again"
    return (
        f"{text}, and VKLAB_NO_BOOTSTRAP=1 forbids installing; install the package or unset "
        "the variable"
    )


def run_in(python: Path, arguments: Sequence[str]) -> int:
    """Run the same vklab command with another Python; on POSIX it replaces this process."""
    command = [str(python), "-m", "vklab", *arguments]
    os.environ[GUARD] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execv(command[0], command)
    # Windows has no exec: os.execv would return to the shell while the new process still runs.
    return subprocess.call(command)


def ensure_environment(command: str, root: Path) -> Path | None:
    """Make the machine ready for a command of EXTRAS; return its Python, or None for this one."""
    state = environment.read_state(root)
    before = set(state.get("declined", ()))
    declined = before | ensure_system(command, system.inspect_machine(), before)
    inside_own = Path(sys.prefix).resolve() == (root / ".venv").resolve()
    if not inside_own and _active_environment_has(EXTRAS[command], root):
        return None
    if not environment.is_ready(state, EXTRAS[command], root):
        with steps.exclusive(root / ".venv.lock"):
            # Another process may have completed the set-up while this one waited for the lock.
            if not environment.is_ready(environment.read_state(root), EXTRAS[command], root):
                environment.build(EXTRAS[command], root, declined)
    elif declined != before:
        environment.write_state(root, {**state, "declined": sorted(declined)})
    return None if inside_own else environment.venv_python(root)


def _active_environment_has(extras: Sequence[str], root: Path) -> bool:
    """Tell whether the user's active environment (venv, conda) has every required package."""
    if sys.prefix == sys.base_prefix and os.environ.get("CONDA_PREFIX") != sys.prefix:
        return False
    for name in environment.required_distributions(root, extras):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            steps.announce(f"the active environment {sys.prefix} lacks {name}; using .venv instead")
            return False
    return True


def ensure_system(command: str, machine: system.Machine, declined: Set[str]) -> set[str]:
    """Install missing system packages; return the optional ones that apt could not install.

    Args:
        command: `lab`, `test` or `test --all`.
        machine: installed packages and tools of this machine.
        declined: optional packages that an earlier run could not install; they are left out.

    Raises SetupStopped when an essential package is missing and cannot be installed.
    """
    if machine.drivers_named_by and not machine.drivers:
        raise steps.SetupStopped(
            f"{machine.drivers_named_by} names no Vulkan driver manifest that exists; correct the "
            "variable or unset it"
        )
    missing = system.missing_packages(machine, command)
    missing = tuple(p for p in missing if p.essential or p.name not in declined)
    if not missing:
        return set()
    line = system.installer_line(machine, missing)
    listed = ", ".join(f"{p.name} ({p.purpose})" for p in missing)
    if machine.system != "Linux":
        # The loader's folder is not certain on these systems: print a note, the doctor checks it.
        purposes = ", ".join(p.purpose for p in missing if p.essential)
        if purposes:
            steps.announce(f"not found: {purposes}; if really absent, {line}")
        return set()
    as_root = os.geteuid() == 0
    if "apt-get" in machine.installers and (as_root or _can_sudo()):
        return _install_with_apt(missing, as_root, line, command)
    if any(p.essential for p in missing):
        raise steps.SetupStopped(
            f"this system lacks {listed}. Run this line, then the same command again:\n  {line}"
        )
    steps.announce(f"some tests will be skipped: this system lacks {listed}. Install:\n  {line}")
    return set()


def _can_sudo() -> bool:
    if shutil.which("sudo") is None:
        return False
    return subprocess.run(["sudo", "-n", "true"], capture_output=True, timeout=20).returncode == 0


def _install_with_apt(
    missing: Sequence[system.SystemPackage], as_root: bool, line: str, command: str
) -> set[str]:
    essential = tuple(p.name for p in missing if p.essential)
    optional = tuple(p.name for p in missing if not p.essential)
    steps.announce(f"installing system packages with apt: {', '.join((*essential, *optional))}")
    updated = steps.run_logged(system.update_command(as_root), limit_s=APT_LIMIT_S)
    if essential:
        result = steps.run_logged(system.install_command(essential, as_root), limit_s=APT_LIMIT_S)
        importlib.invalidate_caches()
        left = system.missing_packages(system.inspect_machine(), command)
        names = ", ".join(p.name for p in left if p.essential)
        if names:
            raise steps.SetupStopped(
                f"apt could not install {names} (exit code {result.returncode}); try by hand:\n"
                f"  {line}\n{result.tail or updated.tail}"
            )
    declined = set()
    for name in optional:
        # One by one: apt refuses the whole list for one package that the distribution lacks.
        result = steps.run_logged(system.install_command((name,), as_root), limit_s=APT_LIMIT_S)
        if result.returncode:
            steps.announce(f"apt could not install {name}; tests that need it will be skipped")
            declined.add(name)
    return declined
