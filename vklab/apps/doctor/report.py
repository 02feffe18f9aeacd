"""Report of the doctor: its checks in order, and the facts of the devices.

Decides nothing; draws itself as text and as a table. Visited by lab 00.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from vklab.apps.bootstrap import system
from vklab.base import draw

SET_UP = "python3 -m vklab lab   (installs what is missing into .venv)"


def install_line(machine: system.Machine, package: str, purpose: str) -> str:
    """Return the line that installs a package on this system.

    Args:
        machine: the operating system and its package tools.
        package: name of the package on Debian.
        purpose: its purpose in words, for systems without a known package tool.
    """
    return system.installer_line(machine, (system.SystemPackage(package, purpose),))


def driver_line(machine: system.Machine) -> str:
    """Return the line that installs a Vulkan driver that runs anywhere."""
    return install_line(machine, "mesa-vulkan-drivers", "a Vulkan driver")


def assign(variable: str, value: str) -> str:
    """Return the line that sets an environment variable, or removes it for an empty value."""
    if os.name == "nt":
        return f"set {variable}={value}"
    return f"export {variable}={value}" if value else f"unset {variable}"


@dataclass(frozen=True)
class Check:
    """One check: its outcome, the details, and a line to repair a failure.

    `ok` with a `repair` is a note: an optional part is missing, and the line installs it. A check
    that is not `essential` may fail on a usable machine: one broken driver beside a good one.
    """

    name: str
    ok: bool
    detail: str
    repair: str = ""
    essential: bool = True

    @property
    def mark(self) -> str:
        """Return `ok`, `note` or `FAILED`."""
        if not self.ok:
            return "FAILED"
        return "note" if self.repair else "ok"

    def summary(self) -> dict[str, Any]:
        """Return the check ready for JSON."""
        return {
            "name": self.name,
            "ok": self.ok,
            "detail": self.detail,
            "repair": self.repair,
            "essential": self.essential,
        }

    def __str__(self) -> str:
        line = f"{self.mark:<6}  {self.name}: {self.detail}"
        return f"{line}\n        to repair: {self.repair}" if self.repair else line


@dataclass(frozen=True)
class Report:
    """All checks, from Python up to the devices, and the facts of the devices."""

    checks: tuple[Check, ...]
    devices: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether vklab can work on this machine: every essential check passes."""
        return all(check.ok for check in self.checks if check.essential)

    @property
    def verdict(self) -> str:
        """Return the outcome in one line."""
        marks = [check.mark for check in self.checks]
        notes = [check.name for check in self.checks if check.mark == "note"]
        counts = (
            f"{len(marks)} checks, {marks.count('FAILED')} failed, "
            f"{len(notes)} note{'s' * (len(notes) != 1)}"
        )
        if notes:
            counts += f" ({', '.join(notes)}: see `vklab doctor`)"
        return f"{'vklab can work here' if self.ok else 'vklab can NOT work here'}: {counts}"

    def summary(self) -> dict[str, Any]:
        """Return the report ready for JSON."""
        return {
            "ok": self.ok,
            "checks": [check.summary() for check in self.checks],
            "devices": list(self.devices),
        }

    def __str__(self) -> str:
        return "\n".join([*(str(check) for check in self.checks), self.verdict])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(check.mark, check.name, check.detail, check.repair) for check in self.checks]
        return draw.table_html(self.verdict, ("", "check", "found", "to repair"), rows)
