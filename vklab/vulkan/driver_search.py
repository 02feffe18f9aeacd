"""Reasons why the Vulkan loader finds no driver or gives up: variables that hide them, and files.

Imported only after a failure. Opens no driver. Visited by lab 02.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NoReturn

from vklab.base import manifests
from vklab.errors import SetupError, VulkanError

# Variables of the loader that leave out drivers, or the devices of drivers.
FILTERS = ("VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE", "VK_LOADER_DEVICE_ID_FILTER",
           "VK_LOADER_VENDOR_ID_FILTER", "VK_LOADER_DRIVER_ID_FILTER")  # fmt: skip
_NO_DRIVER = {
    ("vkCreateInstance", "VK_ERROR_INCOMPATIBLE_DRIVER"),
    ("vkEnumeratePhysicalDevices", "VK_ERROR_INITIALIZATION_FAILED"),
}


def explain(error: VulkanError) -> None:
    """Raise SetupError with the cause of a command's failure, if the drivers' set-up is the cause.

    Source: Vulkan-Loader, loader_json.c: a file that is no JSON becomes "out of host memory".
    """
    if (error.command, error.result) in _NO_DRIVER:
        raise no_driver() from error
    broken = manifests.unreadable() if error.result == "VK_ERROR_OUT_OF_HOST_MEMORY" else {}
    if broken:
        _raise_for_files(broken, error)


def _raise_for_files(broken: dict[Path, str], error: VulkanError) -> NoReturn:
    places = {str(place) for path in broken for place in (path, path.parent)}
    named = [
        name
        for name in manifests.FILE_VARIABLES
        if places.intersection(os.environ.get(name, "").split(os.pathsep))
    ]
    files = "; ".join(f"{path} ({problem})" for path, problem in broken.items())
    repair = f"correct or remove {', '.join(map(str, broken))}"
    raise SetupError(
        f"the Vulkan loader gives up at a file that is no JSON: {files}",
        f"{repair}, or {_unset(named)}" if named else repair,
    ) from error


def no_driver() -> SetupError:
    """Return the error for a loader that offers no device: variables that hide drivers, or none."""
    causes = {}
    # The loader reads the first that is set, also if it is empty.
    name = next((name for name in manifests.DRIVER_VARIABLES if name in os.environ), None)
    if name:
        causes[name] = f"{name}={shlex.quote(os.environ[name])} names none that works"
    for name in FILTERS:
        if os.environ.get(name):
            causes[name] = f"{name}={shlex.quote(os.environ[name])} hides those that it leaves out"
    if not causes and manifests.hidden():
        name = "XDG_DATA_DIRS"
        causes[name] = (
            f"{name}={shlex.quote(os.environ[name])} leaves out {manifests.hidden()[0].parent}"
        )
    if causes:
        return SetupError(
            f"no Vulkan driver answers the loader: {'; '.join(causes.values())}",
            f"{_unset(causes)}   (`vklab doctor` lists drivers)",
        )
    return SetupError(
        "no Vulkan driver answers the loader",
        "apt-get install mesa-vulkan-drivers   (Debian, Ubuntu: brings lavapipe, which runs on "
        "the CPU), or install your GPU vendor's driver; `vklab doctor` lists drivers",
    )


def _unset(names: list[str] | dict[str, str]) -> str:
    """Return the line that removes variables."""
    if os.name == "nt":
        return " & ".join(f"set {name}=" for name in names)
    return f"unset {' '.join(names)}"
