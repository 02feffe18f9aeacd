"""Delegated cgroup v2: a group with the limits for each kernel, and what removes groups."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from vklab_course.grade.sandbox import leftovers
from vklab_course.grade.sandbox.limits import Limits

__all__ = ["Cgroup", "find_cgroup"]

POLL_S = 0.1


@dataclass
class Cgroup:
    """A folder of cgroup v2 in which this process may make groups."""

    folder: Path
    made: list[Path] = field(default_factory=list)

    def enter(self, limits: Limits) -> Path:
        """Make a group with the limits; a process joins it by its file cgroup.procs."""
        group = self.folder / leftovers.fresh_name()
        group.mkdir()
        self.made.append(group)
        (group / "memory.max").write_text(str(limits.memory_bytes))
        (group / "pids.max").write_text(str(limits.processes))
        wanted = {
            "memory.swap.max": "0",
            "cpu.max": f"{int(limits.cpus * 100_000)} 100000",
            "memory.oom.group": "1",
        }
        for name, value in wanted.items():
            with contextlib.suppress(OSError):  # no swap, or processors are not delegated
                (group / name).write_text(value)
        return group

    def ran_out(self) -> bool:
        """Tell whether a process of a group was killed because the memory had run out."""
        for group in self.made:
            with contextlib.suppress(OSError):
                events = (group / "memory.events").read_text().split()
                if int(events[events.index("oom_kill") + 1]) > 0:
                    return True
        return False

    def remove(self, group: Path | None = None) -> None:
        """End what still runs in a group that this process has made, and remove it.

        Args:
            group: the group; None: all of them.
        """
        for one in [group] if group else [*self.made]:
            _removed(one)
            if one in self.made:
                self.made.remove(one)

    def sweep(self, maker: int | None = None) -> list[str]:
        """Remove groups without a process whose maker has ended; return their names.

        Args:
            maker: a process that has ended: remove its groups, with what still runs in them.
        """
        left = []
        for group in sorted(self.folder.glob("vklab-*")):
            if leftovers.is_left(group.name, maker) and (maker or not _populated(group)):
                _removed(group)
                left.append(group.name)
        return left


def _populated(group: Path) -> bool:
    try:
        return bool((group / "cgroup.procs").read_text().strip())
    except OSError:
        return False


def _removed(group: Path) -> None:
    """End what runs in a group, and remove it; its last process may take a moment to end."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    for _ in range(100):
        try:
            return group.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(POLL_S)


def find_cgroup(own: Path = Path("/proc/self/cgroup"),
                root: Path = Path("/sys/fs/cgroup")) -> Cgroup | None:  # fmt: skip
    """Return the nearest delegated cgroup v2 with memory and pids, or None.

    Args:
        own: the file that names the cgroup of this process.
        root: where cgroup v2 is mounted.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    if not path or not (root / "cgroup.controllers").is_file():
        return None
    folder = root / path.strip("/")
    while folder != root.parent:
        with contextlib.suppress(OSError):
            given = (folder / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(given) and os.access(folder, os.W_OK):
                group = Cgroup(folder)
                if _works(group):
                    return group
        folder = folder.parent
    return None


def _works(cgroup: Cgroup) -> bool:
    """Try to move a process into a new group."""
    try:
        group = cgroup.enter(Limits())
        script = 'echo $$ > "$0/cgroup.procs"'
        done = subprocess.run(["/bin/sh", "-c", script, str(group)], capture_output=True)
        return done.returncode == 0
    except OSError:
        return False
    finally:
        cgroup.remove()
