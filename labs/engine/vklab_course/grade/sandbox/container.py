"""Container as a sandbox, for systems without bubblewrap: docker or podman with a pinned image.

The image holds Python with vklab's wheel; it is named by its digest, so that every submission meets
the same one. On macOS and Windows the container runs in the virtual machine of Docker or Podman.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab.errors import SetupError
from vklab_course.grade.sandbox import leftovers
from vklab_course.grade.sandbox.base import HOME, Program, Sandbox
from vklab_course.grade.sandbox.limits import Limits

__all__ = ["Container", "container"]

PINNED = re.compile(r"[a-z0-9][a-z0-9./_:-]*@sha256:[0-9a-f]{64}")
USER, PATIENCE_S = "65532:65532", 60.0
REFUSED = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock")


@dataclass(frozen=True)
class Container(Sandbox):
    """A Linux container without a network, without privileges, and with a read-only root.

    Attributes:
        image: name@sha256:digest.
        program: docker or podman.
        limits: most memory, processes, bytes and processors.
        python: the interpreter inside.
        extra: folders of the host to read, by their path inside.
    """

    image: str
    program: str = "docker"
    limits: Limits = field(default_factory=Limits)
    python: str = "python3"
    extra: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not PINNED.fullmatch(self.image):
            raise SetupError(
                f"the image {self.image!r} is not named by its digest",
                "give name@sha256:... as `docker images --digests` prints it",
            )

    def _command(self, program: Program) -> list[str]:
        name = leftovers.fresh_name()
        (program.private / "container").write_text(name, "ascii")
        size = (
            f"size={self.limits.work_bytes},nr_inodes={self.limits.files // 2},mode=1777,"
            "nosuid,nodev"
        )
        limits = self.limits
        options = [
            "--rm",
            "--init",
            "--name",
            name,
            "--pull",
            "never",
            "--network",
            "none",
            "--ipc",
            "private",
            "--read-only",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--user",
            USER if os.name == "nt" else f"{_uid()}:{_uid()}",
            "--hostname",
            "sandbox",
            "--workdir",
            HOME,
            "--memory",
            str(limits.memory_bytes),
            "--memory-swap",
            str(limits.memory_bytes),
            "--pids-limit",
            str(limits.processes),
            "--cpus",
            f"{limits.cpus:g}",
            "--ulimit",
            "core=0",
            "--ulimit",
            f"nofile={limits.open_files}",
            "--ulimit",
            f"fsize={limits.file_bytes}",
            "--ulimit",
            f"cpu={limits.cpu_seconds}",
            "--tmpfs",
            f"/tmp:{size}",
            "--tmpfs",
            f"{HOME}:{size}",
            "--shm-size",
            "32m",
        ]
        for inside, path in program.readable.items():
            options += ["--mount", f"type=bind,source={_checked(path)},target={inside},readonly"]
        for folder in program.writable:
            options += ["--mount", f"type=bind,source={_checked(folder)},target={folder}"]
        own = {
            "HOME": HOME,
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "VKLAB_CACHE": f"{HOME}/.cache",
        }
        for name, value in {**own, **program.variables}.items():
            options += ["--env", f"{name}={value}"]
        return [
            self.program,
            "run",
            *options,
            "--entrypoint",
            self.python,
            self.image,
            *program.argv[1:],
        ]

    def settings(self) -> dict[str, Any]:
        """Return what `from_settings` needs to make the sandbox again in another process."""
        extra = {inside: str(path) for inside, path in self.extra.items()}
        return {
            "kind": "container",
            "image": self.image,
            "program": self.program,
            "python": self.python,
            "extra": extra,
        }

    def describe(self) -> dict[str, Any]:
        """Return the sandbox as plain data, for the result of a submission."""
        return {
            "kind": f"{self.program} container",
            "image": self.image,
            "limits_by": self.program,
            "limits": dataclasses.asdict(self.limits),
        }

    def ended(self, private: Path) -> None:
        """Remove the container: the end of the program that started it does not end it."""
        file = private / "container"
        if file.is_file():
            self._remove([file.read_text("ascii")])
            file.unlink()

    def swept(self, maker: int | None = None) -> list[str]:
        """Remove containers of processes that have ended, even if they still run."""
        there = self._asked("ps", "--all", "--filter", "name=vklab-", "--format", "{{.Names}}")
        left = [name for name in there.split() if leftovers.is_left(name, maker)]
        self._remove(left)
        return left

    def _remove(self, names: Sequence[str]) -> None:
        if names:
            self._asked("rm", "-f", *names)

    def _asked(self, *words: str) -> str:
        """Return what the program prints; "" if it cannot be asked."""
        try:
            done = subprocess.run(
                [self.program, *words],
                capture_output=True,
                timeout=PATIENCE_S,
                text=True,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout


def _uid() -> int:
    uid = os.getuid() if hasattr(os, "getuid") else 65532
    return uid or 65532


def _checked(path: Path) -> Path:
    """Return a path that may be mounted. Raises SetupError for a socket that controls the host."""
    real = path.resolve()
    commas = "," in str(path)
    if (
        real.name in REFUSED
        or real in (Path("/"), Path("/run"), Path("/var/run"), Path.home())
        or commas
    ):
        raise SetupError(
            f"{path} must not be mounted into a sandbox", "mount the one folder that the labs need"
        )
    return real


def container(image: str, limits: Limits | None = None, **more: Any) -> Container:
    """Return a container sandbox of this machine. Raises SetupError if there is no program.

    Args:
        image: name@sha256:digest.
        limits: most memory, processes, bytes and processors.
        more: as in `Container`.
    """
    program = next((name for name in ("podman", "docker") if shutil.which(name)), "")
    if not program:
        raise SetupError(
            "neither podman nor docker is installed",
            "install one of them, or grade on Linux with bubblewrap",
        )
    return Container(image, program, limits or Limits(), **more)
