"""Names of what a sandbox makes on a host, its cgroups and containers, so that leftovers are found.

vklab-HOST-PID-RANDOM: the process PID of HOST has made it. A grader that is killed cannot remove
its own; the next batch there does.
"""

from __future__ import annotations

import os
import platform
import re

import psutil

__all__ = ["fresh_name", "is_left"]

NAME = re.compile(r"vklab-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", platform.node()).strip("-")[:40] or "host"


def fresh_name() -> str:
    """Return a new name of something that this process makes."""
    return f"vklab-{_host()}-{os.getpid()}-{os.urandom(4).hex()}"


def is_left(name: str, maker: int | None = None) -> bool:
    """Tell whether the process that has made something on this host has ended.

    Args:
        name: the name of a cgroup or a container; false for names that are not ours.
        maker: a process that has ended: true for what this one has made; None for any.
    """
    ours = NAME.fullmatch(name)
    if ours is None or ours["host"] != _host():
        return False
    return int(ours["pid"]) == maker if maker else not psutil.pid_exists(int(ours["pid"]))
