"""Probe of a sandbox: what it does decides whether it may run submissions, not its name.

Run before each batch. A program inside tries to get out; this side looks at what it did.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from vklab.errors import SetupError
from vklab_course.grade.sandbox import probe_child
from vklab_course.grade.sandbox.base import HOME, Sandbox
from vklab_course.grade.sandbox.command import (
    PACKAGE,
    Bubblewrap,
    install_advice,
    python_folders,
)
from vklab_course.grade.sandbox.limits import Watch, kill_tree
from vklab_course.places import PROJECT, labs_folder

__all__ = ["Finding", "probe", "require"]

SECONDS, MEMORY_BYTES, FILES = 60.0, 256 << 20, 3_000
# Stages in which the sandbox has a small limit, and may end everything inside.
LIMITED = ("memory", "files")
CHILD = "/opt/probe_child.py"
SOCKETS = ("/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock",
           "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
           "/tmp/.X11-unix")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Finding:
    """One protection that a sandbox lacks: its name, and what succeeded inside."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def require(sandbox: Sandbox, hidden: Mapping[str, Sequence[Path]] | None = None) -> None:
    """Probe a sandbox. Raises SetupError with each protection that it lacks.

    Args:
        sandbox: the sandbox.
        hidden: further paths that code must not see, by a name: results, submissions ...
    """
    findings = probe(sandbox, hidden)
    if findings:
        listed = "\n".join(f"  {finding}" for finding in findings)
        raise SetupError(
            f"nothing is graded, because the sandbox is not safe:\n{listed}", install_advice()
        )


def probe(sandbox: Sandbox, hidden: Mapping[str, Sequence[Path]] | None = None) -> list[Finding]:
    """Return the protections that a sandbox lacks; none if it may run submissions.

    Args:
        sandbox: the sandbox.
        hidden: as in `require`.
    """
    private = Path(tempfile.mkdtemp(prefix="vklab-probe-"))
    before = _mounts()
    try:
        with _host() as host:
            job = {
                **host,
                "stage": "escape",
                "hidden": _hidden(hidden or {}, private),
                "read_only": [str(p) for p in python_folders()],
                "writable": [HOME, "/tmp", "/dev/shm", "/dev/mqueue"],
                "control_sockets": SOCKETS,
                "work_bytes": sandbox.limits.work_bytes,
                "processes": sandbox.limits.processes,
                # The memory of a container is counted by its cgroup, whatever is sent inside.
                "filtered": isinstance(sandbox, Bubblewrap),
            }
            found = _inside(sandbox, job, private)
            found |= _outside(host)
        found |= _limited(sandbox, private, "memory", memory_bytes=MEMORY_BYTES)
        found |= _limited(sandbox, private, "files", files=FILES)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    if _mounts() - before:
        found["leftover_mounts"] = f"the host has new mounts: {sorted(_mounts() - before)[:3]}"
    return [Finding(name, what) for name, what in found.items()]


@contextlib.contextmanager
def _host() -> Iterator[dict[str, Any]]:
    """Keep on the host what the code inside must not reach: sockets, a process, a secret."""
    nonce = f"vklab-{secrets.token_hex(8)}"
    sleep = "import time; time.sleep(300)"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        if sys.platform == "linux":
            unix.bind("\0" + nonce)
            unix.listen()
        victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", sleep, nonce], stdin=subprocess.DEVNULL
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        yield {
            "nonce": nonce,
            "abstract": nonce,
            "port": tcp.getsockname()[1],
            "victim": victim.pid,
            "secret": secrets.token_hex(16),
            "orphan": f"orphan-{nonce}",
        }


def _hidden(more: Mapping[str, Sequence[Path]], private: Path) -> dict[str, list[str]]:
    """Return paths that exist on the host and that code must not see."""
    canary = private / "results.json"
    canary.write_text("{}")
    shown = [str(path) for path in python_folders()]
    home = [
        str(path)
        for path in sorted(Path.home().iterdir())[:50]
        if not any(f"{s}/".startswith(f"{path}/") for s in shown)
    ]
    wanted = {
        "home": home,
        "results": [str(canary)],
        "checks": [str(labs_folder() / "checks"), f"{PACKAGE}/labs", f"{HOME}/labs"],
        "working_tree": [str(PROJECT / name) for name in ("pyproject.toml", "labs", ".git")],
    }
    for name, paths in more.items():
        wanted[name] = [str(path.resolve()) for path in paths]
    return wanted


def _inside(sandbox: Sandbox, job: Mapping[str, Any], private: Path) -> dict[str, str]:
    """Run the probe in the sandbox; a probe that does not answer is a finding."""
    readable = {CHILD: Path(probe_child.__file__)}
    argv = [sys.executable, "-I", "-S", CHILD, json.dumps(job)]
    command = sandbox.command(argv, readable=readable, private=private / str(job["stage"]))
    variables = {**os.environ, "VKLAB_PROBE": str(job.get("secret", ""))}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=said,
            env=variables,
            start_new_session=True,
            cwd="/",
        )
        watch = Watch(process.pid, sandbox.limits)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return {"start": f"the probe did not end within {SECONDS:g} s"}
        finally:
            watch.stop()
            kill_tree(process.pid)
            process.wait()
            sandbox.ended(private / str(job["stage"]))
        out.seek(0)
        said.seek(0)
        text, problem = out.read(100_000), said.read(2000).decode("utf-8", "replace")
    if watch.reason and job["stage"] in LIMITED:
        return {}
    with contextlib.suppress(ValueError):
        return {str(name): str(what) for name, what in json.loads(text).items()}
    if job["stage"] in LIMITED:
        return {}  # the limit has ended the whole sandbox
    return {"start": f"the sandbox ended with code {process.returncode}: {problem.strip()[:500]}"}


def _outside(host: Mapping[str, Any]) -> dict[str, str]:
    """Look for what the probe has left on the host."""
    found = {}
    time.sleep(0.2)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if host["orphan"] in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found["orphans"] = f"process {process.pid} went on after the sandbox had ended"
                process.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(host["victim"]).status() != psutil.STATUS_ZOMBIE:
            return found
    return {**found, "signals": "a process of the host was ended from inside"}


def _limited(sandbox: Sandbox, private: Path, stage: str, **limit: int) -> dict[str, str]:
    """Use more than a small limit allows, in the same sandbox with this limit.

    Args:
        sandbox: the sandbox.
        private: folder outside of it.
        stage: name of the attempt.
        limit: the limit by its name.
    """
    small: Any = sandbox
    small = dataclasses.replace(small, limits=dataclasses.replace(sandbox.limits, **limit))
    return _inside(small, {"stage": stage, **limit}, private)


def _mounts() -> set[str]:
    with contextlib.suppress(OSError):
        return set(Path("/proc/self/mounts").read_text().splitlines())
    return set()
