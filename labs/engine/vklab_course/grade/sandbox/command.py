"""Sandbox: the command line under which a submission's code runs, with nothing of the host in it.

`Bubblewrap` lists what is mounted; all else is absent. The probe (probe.py), not the name of the
program, decides whether a sandbox is good enough. Container: container.py.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab.errors import SetupError
from vklab_course.grade.sandbox import package, seccomp
from vklab_course.grade.sandbox.base import HOME, Program, Sandbox
from vklab_course.grade.sandbox.cgroup import Cgroup, find_cgroup
from vklab_course.grade.sandbox.container import Container, container
from vklab_course.grade.sandbox.limits import Limits
from vklab_course.places import PROJECT

__all__ = [
    "APPARMOR", "PACKAGE", "Bubblewrap", "bubblewrap", "find_sandbox", "from_settings",
    "install_advice", "python_folders",
]  # fmt: skip

PACKAGE, TEMP = "/opt/vklab", "/tmp"
SHM_BYTES = 32 << 20
# A user id outside every range that a distribution gives to people, daemons or subordinate ids.
FIRST_UID, UIDS = 0x70000000, 0x00FFFFFF
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs of /usr read from /etc: the loader's cache, alternatives, drivers, fonts, the zone.
SETTINGS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/vulkan", "/etc/fonts", "/etc/localtime", "/etc/mime.types", "/etc/glvnd",
)  # fmt: skip
PASSWD = "root:x:0:0::/:/usr/sbin/nologin\nstudent:x:{uid}:{uid}::/home/student:/bin/sh\n"
# Joins the cgroup ($1, "" for none), opens the system-call filter as descriptor 9, starts the rest.
ENTER = '[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 125; exec 9< "$2"; shift 2; exec "$@"'
APPARMOR = """\
# /etc/apparmor.d/bwrap: lets bubblewrap make user namespaces, and no other program.
# Load it with: sudo apparmor_parser -r /etc/apparmor.d/bwrap
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
  include if exists <local/bwrap>
}
"""


@dataclass(frozen=True)
class Bubblewrap(Sandbox):
    """Bubblewrap with an allow-list of mounts, and limits by cgroup v2 or by rlimit.

    Attributes:
        limits: most memory, processes, bytes and seconds.
        package: folder with an installed copy of vklab; None if the environment has it.
        cgroup: a delegated cgroup v2, or None for rlimits and a watch on memory.
        uid: user id of the code; chosen for each sandbox when root runs the grader.
        extra: further folders of the host to read, by their path inside.
    """

    limits: Limits = field(default_factory=Limits)
    package: Path | None = None
    cgroup: Cgroup | None = None
    uid: int = field(default_factory=lambda: FIRST_UID + int.from_bytes(os.urandom(3), "big"))
    extra: Mapping[str, Path] = field(default_factory=dict)

    def _command(self, program: Program) -> list[str]:
        private = program.private
        for folder in program.writable:
            _give(folder, self.uid)
        filter_file = private / "seccomp.bpf"
        filter_file.write_bytes(seccomp.program())
        group = str(self.cgroup.enter(self.limits)) if self.cgroup else ""
        (private / "cgroup").write_text(group, "utf-8")
        options = [
            *self._namespaces(),
            *self._mounts(private, program.readable, program.writable),
            *self._environment(program.variables),
        ]
        # `env -i`: the first process of the sandbox keeps the environment that it started with.
        return [
            "/usr/bin/env",
            "-i",
            "PATH=/usr/bin:/bin",
            "/bin/sh",
            "-c",
            ENTER,
            "sandbox",
            group,
            str(filter_file),
            "bwrap",
            *options,
            "--seccomp",
            "9",
            "--",
            *self._as_user(),
            *self.limits.prlimit(),
            *program.argv,
        ]

    def _namespaces(self) -> list[str]:
        options = [
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--die-with-parent",
            "--new-session",
            "--hostname",
            "sandbox",
            "--cap-drop",
            "ALL",
        ]
        if os.geteuid() == 0:  # then setpriv changes to an unused user id inside
            for name in ("SETUID", "SETGID", "SETPCAP"):
                options += ["--cap-add", f"CAP_{name}"]
            return options
        return ["--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000", *options]

    def _as_user(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        return [
            "setpriv",
            "--reuid",
            str(self.uid),
            "--regid",
            str(self.uid),
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            "--",
        ]

    def _mounts(
        self, private: Path, readable: Mapping[str, Path], writable: Sequence[Path]
    ) -> list[str]:
        data = PROJECT / "data"
        shown = {"/etc/passwd": self._passwd(private)}
        shown |= {str(prefix): prefix for prefix in python_folders()}
        if self.package is not None:
            shown |= {PACKAGE: self.package}
            shown |= {f"{PACKAGE}/data": data} if data.is_dir() else {}
        shown |= readable
        options: list[str] = []
        for name in SYSTEM:
            path = Path(name)
            if path.is_symlink():
                options += ["--symlink", os.readlink(path), name]
            elif path.is_dir():
                options += ["--ro-bind", name, name]
        options += ["--perms", "0755", "--dir", "/etc"]
        for name in SETTINGS:
            options += ["--ro-bind-try", name, name]
        options += ["--proc", "/proc", "--dev", "/dev"]
        sizes = (
            (TEMP, self.limits.work_bytes),
            (HOME, self.limits.work_bytes),
            ("/dev/shm", SHM_BYTES),
        )
        for name, size in sizes:
            options += ["--perms", "1777", "--size", str(size), "--tmpfs", name]
        for inside, path in shown.items():
            options += [*_parents(inside), "--ro-bind", str(path), inside]
        for folder in writable:
            options += [*_parents(str(folder)), "--bind", str(folder), str(folder)]
        return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]

    def _passwd(self, private: Path) -> Path:
        path = private / "passwd"
        uid = self.uid if os.geteuid() == 0 else 1000
        path.write_text(PASSWD.format(uid=uid), "ascii")
        return path

    def _environment(self, variables: Mapping[str, str]) -> list[str]:
        threads = str(self.limits.threads)
        own = {
            "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin",
            "HOME": HOME,
            "USER": "student",
            "LANG": "C.UTF-8",
            "TMPDIR": TEMP,
            "PYTHONDONTWRITEBYTECODE": "1",
            "VKLAB_CACHE": f"{HOME}/.cache",
            "MPLCONFIGDIR": f"{HOME}/.cache",
            "IPYTHONDIR": f"{HOME}/.ipython",
            "JUPYTER_PLATFORM_DIRS": "1",
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "LP_NUM_THREADS": threads,
        }
        if self.package is not None:
            own["PYTHONPATH"] = PACKAGE
        options = ["--clearenv"]
        for name, value in {**own, **variables}.items():
            options += ["--setenv", name, value]
        return options

    def describe(self) -> dict[str, Any]:
        """Return the sandbox as plain data, for the result of a submission."""
        by = "cgroup v2" if self.cgroup else "rlimits and a watch on memory"
        return {"kind": "bubblewrap", "limits_by": by, "limits": dataclasses.asdict(self.limits)}

    def settings(self) -> dict[str, Any]:
        """Return what `from_settings` needs to make the sandbox again in another process."""
        return {
            "kind": "bubblewrap",
            "package": str(self.package or ""),
            "extra": {inside: str(path) for inside, path in self.extra.items()},
        }

    def ended(self, private: Path) -> None:
        """Remove the command line's cgroup.

        Bubblewrap's first process ends with its parent, and all others with it.
        """
        file = private / "cgroup"
        if self.cgroup and file.is_file() and file.read_text("utf-8"):
            self.cgroup.remove(Path(file.read_text("utf-8")))
            file.unlink()

    def swept(self, maker: int | None = None) -> list[str]:
        """Remove cgroups of processes that have ended, in which nothing runs."""
        return self.cgroup.sweep(maker) if self.cgroup else []

    def closed(self) -> None:
        """Remove the cgroups that are left."""
        if self.cgroup:
            self.cgroup.remove()


def python_folders() -> list[Path]:
    """Return the folders of the Python environment that /usr does not hold, outer ones first."""
    wanted = sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()})
    kept: list[Path] = []
    for path in wanted:
        if not any(path.is_relative_to(p) for p in (Path("/usr"), *kept)):
            kept.append(path)
    for path in kept:
        if path == Path.home() or path in Path.home().parents or (path / "labs/checks").is_dir():
            raise SetupError(
                f"Python is installed in {path}, which a sandbox must not show to a submission",
                "make a virtual environment in a folder of its own, and grade with it",
            )
    return kept


def _parents(inside: str) -> list[str]:
    """Return options that make the folders above a mount; bwrap's own are closed to others."""
    steps = [str(path) for path in list(Path(inside).parents)[::-1][1:]]
    made = ("/usr", "/etc", "/dev", TEMP, HOME, PACKAGE)
    return [
        part
        for step in steps
        if step not in made and not step.startswith("/usr/")
        for part in ("--perms", "0755", "--dir", step)
    ]


def _give(folder: Path, uid: int) -> None:
    """Let the user of a sandbox write to a folder and its files."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)


def bubblewrap(limits: Limits | None = None, **more: Any) -> Bubblewrap:
    """Return the bubblewrap sandbox of this machine. Raises SetupError if it has none.

    The sandbox is not probed yet: `probe.require` does that before each batch.
    """
    problem = "" if sys.platform == "linux" else f"bubblewrap needs Linux, this is {sys.platform}"
    lacking = [name for name in ("bwrap", "setpriv", "prlimit") if not shutil.which(name)]
    if not problem and lacking:
        problem = f"submissions run in a sandbox only, and {', '.join(lacking)} is not installed"
    if problem:
        raise SetupError(problem, install_advice())
    return Bubblewrap(limits or Limits(), package.installed_copy(), find_cgroup(), **more)


def find_sandbox(limits: Limits | None = None, image: str = "") -> Sandbox:
    """Return the sandbox of this machine: a container if an image is named, else bubblewrap.

    Args:
        limits: most memory, processes, bytes and processors.
        image: name@sha256:digest of a container's image.
    """
    return container(image, limits) if image else bubblewrap(limits)


def from_settings(settings: Mapping[str, Any], limits: Limits) -> Sandbox:
    """Return the sandbox that another process has described by `settings`."""
    extra = {inside: Path(path) for inside, path in settings["extra"].items()}
    if settings["kind"] == "bubblewrap":
        folder = Path(settings["package"]) if settings["package"] else None
        return Bubblewrap(limits, folder, find_cgroup(), extra=extra)
    return Container(settings["image"], settings["program"], limits, settings["python"], extra)


def install_advice() -> str:
    """Return what to type so that this system has a sandbox."""
    if sys.platform != "linux":
        return (
            "grade on Linux, or in a container: give --sandbox-image with an image by its "
            "digest, name@sha256:..."
        )
    advice = "sudo apt-get install -y --no-install-recommends bubblewrap util-linux"
    switch = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if switch.is_file() and switch.read_text().strip() == "1" and os.geteuid() != 0:
        advice += (
            ". This system's AppArmor lets only listed programs make user namespaces; "
            "list bubblewrap by this profile:\n" + APPARMOR
        )
    return advice
