"""The lines that repair this system, as a person types them here."""

from __future__ import annotations

import os

from vklab.bootstrap import system

__all__ = ["SET_UP", "assign", "driver_line", "install_line"]

SET_UP = "python3 -m vklab lab   (installs what is missing into .venv)"


def install_line(machine: system.Machine, package: str, purpose: str) -> str:
    """Return the line that installs a package, under its Debian name, on this system."""
    return system.installer_line(machine, (system.SystemPackage(package, purpose),))


def driver_line(machine: system.Machine) -> str:
    """Return the line that installs a Vulkan driver that runs anywhere."""
    return install_line(machine, "mesa-vulkan-drivers", "a Vulkan driver")


def assign(variable: str, value: str) -> str:
    """Return the line that sets an environment variable, or removes it for an empty value."""
    if os.name == "nt":
        return f"set {variable}={value}"
    return f"export {variable}={value}" if value else f"unset {variable}"
