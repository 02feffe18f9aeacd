"""Vulkan loader and driver manifests, read from libraries and files without the bindings.

Opens the loader through ctypes, which opens no driver. Visited by labs 00 and 02.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vklab.apps.bootstrap import system
from vklab.base import manifests

if sys.platform == "win32":
    import winreg

TOOL_LIMIT_S = 20.0
REGISTRY_KEY = r"SOFTWARE\Khronos\Vulkan\Drivers"


@dataclass(frozen=True)
class Loader:
    """Vulkan loader: its library and version, or the problem of opening it."""

    library: str = ""
    version: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Manifest:
    """One driver manifest, the library that it names, and its problem, if any."""

    path: Path
    library: str = ""
    problem: str = ""


def find_loader(system_name: str) -> Loader:
    """Open the Vulkan loader under the bindings' library names, and query its version.

    Vulkan: vkEnumerateInstanceVersion
    """
    names = system.LOADER_NAMES.get(system_name, system.LINUX_LOADER)
    problems = []
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            problems.append(str(error))
            continue
        packed = ctypes.c_uint32(1 << 22)  # a loader without this command is of Vulkan 1.0
        if hasattr(library, "vkEnumerateInstanceVersion"):
            library.vkEnumerateInstanceVersion(ctypes.byref(packed))
        value = packed.value
        version = f"{value >> 22 & 0x7F}.{value >> 12 & 0x3FF}.{value & 0xFFF}"
        return Loader(name, version)
    known = [line for line in _known_libraries() if "libvulkan" in line]
    hint = f"; ldconfig knows {known[0].strip()}" if known else ""
    return Loader(problem=f"{'; '.join(problems)}{hint}")


def _known_libraries() -> list[str]:
    """Return the lines of `ldconfig -p`, or none without ldconfig."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "-p"], capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def find_manifests(
    system_name: str, environment: Mapping[str, str] = os.environ
) -> tuple[Manifest, ...]:
    """Return every driver manifest that the loader reads, each with its problem, if any."""
    if system_name == "Darwin":
        paths = _mac_manifests(environment)
    elif system_name == "Windows":
        named = _named(environment, ";")
        paths = _registry_manifests() if named is None else named
    else:
        paths = list(manifests.every(environment))
    libraries = _known_libraries() if system_name == "Linux" else []
    return tuple(read_manifest(path, libraries, environment) for path in dict.fromkeys(paths))


def _named(environment: Mapping[str, str], separator: str) -> list[Path] | None:
    """Return the manifests that a variable names, none for an empty one; None without one."""
    for variable in manifests.DRIVER_VARIABLES:
        if variable in environment:
            return [Path(part) for part in environment[variable].split(separator) if part]
    return None


def _mac_manifests(environment: Mapping[str, str]) -> list[Path]:
    """Return the manifests in the folders of Homebrew, the Vulkan SDK and conda."""
    named = _named(environment, ":")
    if named is not None:
        return named
    home = Path(environment.get("HOME") or "/nonexistent")
    roots = [
        "/usr/local/share",
        "/usr/local/etc",
        "/opt/homebrew/share",
        "/opt/homebrew/etc",
        "/etc",
        str(home / ".local/share"),
    ]
    roots += [
        f"{environment[name]}/share"
        for name in ("VULKAN_SDK", "CONDA_PREFIX")
        if environment.get(name)
    ]
    roots += [str(path) for path in sorted(home.glob("VulkanSDK/*/macOS/share"))]
    return [path for root in roots for path in sorted(Path(root, "vulkan/icd.d").glob("*.json"))]


def _registry_manifests() -> list[Path]:
    # A driver may also be registered under its display adapter's key: the loader reads that too,
    # and the device list shows the driver.
    paths: list[Path] = []
    if sys.platform == "win32":
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, REGISTRY_KEY) as key:
                count = winreg.QueryInfoKey(key)[1]
                paths = [Path(winreg.EnumValue(key, number)[0]) for number in range(count)]
        except OSError:
            return []
    return paths


def read_manifest(
    path: Path, libraries: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Manifest:
    """Read one manifest and check that its library exists.

    Args:
        path: the manifest, a JSON file.
        libraries: lines of `ldconfig -p`; empty where there is no ldconfig.
        environment: variables; LD_LIBRARY_PATH names further folders.
    """
    try:
        library = json.loads(path.read_text(encoding="utf-8"))["ICD"]["library_path"]
    except OSError as error:
        return Manifest(path, problem=f"cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        library = None
    if not isinstance(library, str):
        return Manifest(path, problem="is not a driver manifest")
    if "/" in library or "\\" in library:
        there = (path.parent / library).exists()
    else:
        there = not libraries or any(line.split()[:1] == [library] for line in libraries)
        folders = environment.get("LD_LIBRARY_PATH", "").split(":")
        there = there or any((Path(folder) / library).exists() for folder in folders if folder)
    return Manifest(path, library, "" if there else f"names {library}, which is not there")
