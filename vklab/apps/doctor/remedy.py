"""Lines that a user types to repair this system. Visited by lab 00."""

from __future__ import annotations

import os

from vklab.apps.bootstrap import system

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
