"""Packages of the operating system: the ones that a command needs, and the line to install them.

Decides which packages are missing; `missing_packages` is pure, `inspect_machine` reads the machine.
Installs through apt only. Standard library only: it runs before anything is installed.
Visited by lab 00.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vklab.base import manifests

LOADER_NAMES = {
    "Windows": ("vulkan-1.dll",),
    "Darwin": (
        "libvulkan.dylib",
        "libvulkan.1.dylib",
        "/usr/local/lib/libvulkan.1.dylib",
        "/opt/homebrew/lib/libvulkan.1.dylib",
    ),
}
LINUX_LOADER = ("libvulkan.so.1",)

SWIFTSHADER_FOLDERS = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")

# `apt-get` must never ask a question, and waits for another apt for a minute at most.
APT = ("apt-get", "-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=1")


@dataclass(frozen=True)
class SystemPackage:
    """One package of the operating system, and its purpose."""

    name: str
    purpose: str
    essential: bool = True


@dataclass(frozen=True)
class Machine:
    """Installed software of a machine, as far as the set-up of vklab depends on it."""

    system: str = "Linux"
    distribution: str = ""
    python: str = "3.11"
    installers: frozenset[str] = frozenset()
    has_venv: bool = False
    has_loader: bool = False
    drivers: tuple[str, ...] = ()
    drivers_named_by: str = ""
    has_nvidia: bool = False
    tools: frozenset[str] = field(default_factory=frozenset)


def missing_packages(machine: Machine, command: str) -> tuple[SystemPackage, ...]:
    """Return the packages that a command lacks, under their Debian names.

    Args:
        machine: installed software of the machine.
        command: `lab`, `test`, or `test --all`, which also runs the labs in a browser.
    """
    wanted = [
        (machine.has_venv, SystemPackage(f"python{machine.python}-venv", "Python's venv module")),
        (machine.has_loader, SystemPackage("libvulkan1", "the Vulkan loader")),
        (bool(machine.drivers), SystemPackage("mesa-vulkan-drivers", "a Vulkan driver")),
    ]
    if command.startswith("test"):
        wanted += [
            (tool in machine.tools, SystemPackage(name, purpose, essential=False))
            for tool, name, purpose in (
                ("validation", "vulkan-validationlayers", "the validation layer"),
                ("glsl", "glslang-tools", "glslangValidator, for GLSL shaders"),
                ("spirv-val", "spirv-tools", "spirv-val"),
                ("bubblewrap", "bubblewrap", "bubblewrap, the sandbox of the grader"),
            )
        ]
        # Ubuntu's chromium is a snap without the library; users of others install it themselves.
        if machine.distribution == "debian":
            swiftshader = SystemPackage("chromium-common", "SwiftShader, a second driver", False)
            wanted.append(("swiftshader" in machine.tools, swiftshader))
            if "--all" in command:
                browser = SystemPackage("chromium", "a browser, to run the labs in", False)
                wanted.append(("chromium" in machine.tools, browser))
    return tuple(package for present, package in wanted if not present)


def update_command(as_root: bool) -> list[str]:
    """Return the command that refreshes apt's package lists."""
    return [*_prefix(as_root), *APT, "update"]


def install_command(names: tuple[str, ...], as_root: bool) -> list[str]:
    """Return the apt command that installs packages without a question."""
    return [*_prefix(as_root), *APT, "install", "-y", "--no-install-recommends", *names]


def _prefix(as_root: bool) -> list[str]:
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive"]
    return quiet if as_root else ["sudo", "-n", *quiet]


def installer_line(machine: Machine, packages: tuple[SystemPackage, ...]) -> str:
    """Return the line that a user types on this system to install the packages."""
    if machine.system == "Darwin":
        return (
            "install the Vulkan SDK for macOS (https://vulkan.lunarg.com/sdk/home#mac; it brings "
            "the loader, MoltenVK and slangc), or use conda: conda env create -f environment.yml"
        )
    if machine.system == "Windows":
        return (
            "install your GPU's current driver or the Vulkan SDK "
            "(https://vulkan.lunarg.com/sdk/home#windows), or use conda: "
            "conda env create -f environment.yml"
        )
    if "apt-get" in machine.installers:
        names = " ".join(package.name for package in packages)
        return f"sudo apt-get update && sudo apt-get install -y --no-install-recommends {names}"
    if "dnf" in machine.installers:
        return "sudo dnf install vulkan-loader mesa-vulkan-drivers"
    if "pacman" in machine.installers:
        return "sudo pacman -S vulkan-icd-loader vulkan-swrast"
    purposes = ", ".join(package.purpose for package in packages)
    return f"install with your system's package tool: {purposes}"


def inspect_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """Inspect this machine: files and the loader only, no package database, no network."""
    system = platform.system()
    drivers = manifests.drivers(environment) if system == "Linux" else ()
    return Machine(
        system=system,
        distribution=_distribution(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        installers=frozenset(n for n in ("apt-get", "dnf", "pacman") if shutil.which(n)),
        has_venv=all(importlib.util.find_spec(name) for name in ("ensurepip", "venv")),
        has_loader=_has_loader(system),
        drivers=tuple(str(path) for path in drivers),
        drivers_named_by=next(filter(environment.__contains__, manifests.DRIVER_VARIABLES), ""),
        has_nvidia=_has_nvidia(drivers),
        tools=_tools(environment),
    )


def _has_loader(system: str) -> bool:
    for name in LOADER_NAMES.get(system, LINUX_LOADER):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _has_nvidia(drivers: tuple[Path, ...]) -> bool:
    return (
        Path("/proc/driver/nvidia/version").exists()
        or shutil.which("nvidia-smi") is not None
        or any("nvidia" in path.name for path in drivers)
    )


def _tools(environment: Mapping[str, str]) -> frozenset[str]:
    layers = [
        folder / "explicit_layer.d" / "VkLayer_khronos_validation.json"
        for folder in manifests.folders(environment)
    ]
    swiftshader = [Path(folder) / "libvk_swiftshader.so" for folder in SWIFTSHADER_FOLDERS]
    present = {
        "validation": any(path.exists() for path in layers),
        "glsl": bool(shutil.which("glslangValidator") or shutil.which("glslc")),
        "spirv-val": bool(shutil.which("spirv-val")),
        "bubblewrap": bool(shutil.which("bwrap")),
        "swiftshader": any(path.exists() for path in swiftshader),
        "chromium": bool(shutil.which("chromium") or shutil.which("chromium-browser")),
    }
    return frozenset(name for name, there in present.items() if there)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""
