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

from vklab.course.grade.sandbox.limits import Limits
from vklab.errors import SetupError

__all__ = ["Container", "container"]

HOME = "/home/student"
PINNED = re.compile(r"[a-z0-9][a-z0-9./_:-]*@sha256:[0-9a-f]{64}")
USER = "65532:65532"
REFUSED = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock")


@dataclass(frozen=True)
class Container:
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

    def command(
        self,
        argv: Sequence[str],
        *,
        writable: Sequence[Path] = (),
        readable: Mapping[str, Path] | None = None,
        variables: Mapping[str, str] | None = None,
        private: Path,
    ) -> list[str]:
        """Return the command line that runs `argv` in a new container.

        Args:
            argv: the program and its arguments; the first may be this process's Python.
            writable: folders of the host that keep their path and may be written.
            readable: further files and folders of the host, by their path inside.
            variables: environment variables of the program.
            private: folder outside the sandbox, for the container's id.
        """
        private.mkdir(parents=True, exist_ok=True)
        (private / "container").unlink(missing_ok=True)
        size = f"size={self.limits.work_bytes},mode=1777,nosuid,nodev"
        limits = self.limits
        options = [
            "--rm", "--init", "--cidfile", str(private / "container"), "--pull", "never",
            "--network", "none", "--ipc", "private",
            "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--user", USER if os.name == "nt" else f"{_uid()}:{_uid()}",
            "--hostname", "sandbox", "--workdir", HOME,
            "--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes),
            "--pids-limit", str(limits.processes), "--cpus", f"{limits.cpus:g}",
            "--ulimit", "core=0", "--ulimit", f"nofile={limits.open_files}",
            "--ulimit", f"fsize={limits.file_bytes}", "--ulimit", f"cpu={limits.cpu_seconds}",
            "--tmpfs", f"/tmp:{size}", "--tmpfs", f"{HOME}:{size}", "--shm-size", "32m",
        ]  # fmt: skip
        for inside, path in {**self.extra, **(readable or {})}.items():
            options += ["--mount", f"type=bind,source={_checked(path)},target={inside},readonly"]
        for folder in writable:
            options += ["--mount", f"type=bind,source={_checked(folder)},target={folder}"]
        own = {"HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
               "VKLAB_CACHE": f"{HOME}/.cache"}  # fmt: skip
        for name, value in {**own, **(variables or {})}.items():
            options += ["--env", f"{name}={value}"]
        return [self.program, "run", *options, "--entrypoint", self.python, self.image, *argv[1:]]

    def settings(self) -> dict[str, Any]:
        """Return what `from_settings` needs to make the sandbox again in another process."""
        extra = {inside: str(path) for inside, path in self.extra.items()}
        return {"kind": "container", "image": self.image, "program": self.program,
                "python": self.python, "extra": extra}  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """Return the sandbox as plain data, for the result of a submission."""
        return {"kind": f"{self.program} container", "image": self.image,
                "limits_by": self.program, "limits": dataclasses.asdict(self.limits)}  # fmt: skip

    def ended(self, private: Path) -> None:
        """Kill the container: the end of the program that started it does not end it."""
        file = private / "container"
        if file.is_file():
            command = [self.program, "kill", file.read_text("ascii").strip()]
            subprocess.run(command, capture_output=True, timeout=60, check=False)
            file.unlink()

    def closed(self) -> None:
        """Remove nothing: each container is removed when it ends."""


def _uid() -> int:
    uid = os.getuid() if hasattr(os, "getuid") else 65532
    return uid or 65532


def _checked(path: Path) -> Path:
    """Return a path that may be mounted. Raises SetupError for a socket that controls the host."""
    real = path.resolve()
    commas = "," in str(path)
    if real.name in REFUSED or real in (Path("/"), Path("/run"), Path("/var/run"), Path.home()) \
            or commas:  # fmt: skip
        raise SetupError(f"{path} must not be mounted into a sandbox",
                         "mount the one folder that the labs need")  # fmt: skip
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
        raise SetupError("neither podman nor docker is installed",
                         "install one of them, or grade on Linux with bubblewrap")  # fmt: skip
    return Container(image, program, limits or Limits(), **more)
