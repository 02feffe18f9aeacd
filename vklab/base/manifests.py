"""Manifests of Vulkan drivers and layers, in the folders where the loader looks for them on Linux.

Standard library only: a set-up asks before anything is installed, the doctor and the error of a
missing driver later. Opens no driver. Visited by lab 02.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

# Each variable replaces the loader's search for drivers; the first is the newer name.
DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
# All that name files or folders.
FILE_VARIABLES = (*DRIVER_VARIABLES, "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH", "VK_ADD_LAYER_PATH",
                  "VK_IMPLICIT_LAYER_PATH", "VK_ADD_IMPLICIT_LAYER_PATH")  # fmt: skip
_DATA_FOLDERS = ("/usr/local/share", "/usr/share")


def drivers(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the driver manifests on Linux without those whose library is missing."""
    return tuple(path for path in every(environment) if _is_usable(path))


def every(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the Vulkan driver manifests that the loader reads on Linux, broken ones too.

    Source: LoaderDriverInterface.md of the Vulkan-Loader, "Driver Discovery on Linux".
    """
    for variable in DRIVER_VARIABLES:
        if variable in environment:  # an empty one names no driver
            return tuple(_files([Path(p) for p in environment[variable].split(":") if p]))
    added = environment.get("VK_ADD_DRIVER_FILES", "").split(":")
    listed = [folder / "icd.d" for folder in folders(environment)]
    return tuple(_files([*(Path(part) for part in added if part), *listed]))


def unreadable(environment: Mapping[str, str] = os.environ) -> dict[Path, str]:
    """Return the manifests of drivers and layers that are no JSON on Linux, with the fault of each.

    Source: LoaderLayerInterface.md of the Vulkan-Loader, "Linux Layer Discovery".
    """
    layers = [
        Path(part)
        for name in FILE_VARIABLES
        if "LAYER" in name
        for part in environment.get(name, "").split(":")
        if part
    ]
    layers += [
        folder / kind
        for folder in folders(environment)
        for kind in ("explicit_layer.d", "implicit_layer.d")
    ]
    found = {}
    for path in (*every(environment), *_files(layers)):
        try:  # as in the loader, more text may follow the object
            json.JSONDecoder().raw_decode(path.read_text("utf-8", "replace").lstrip())
        except OSError:
            continue
        except ValueError as error:
            found[path] = str(error)
    return found


def hidden(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the manifests in the usual folders that XDG_DATA_DIRS leaves out."""
    named = environment.get("XDG_DATA_DIRS", "")
    usual = [Path(folder) for folder in _DATA_FOLDERS if named and folder not in named.split(":")]
    return tuple(_files([folder / "vulkan/icd.d" for folder in usual]))


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders `vulkan` of the loader's search, in its order."""
    home = Path(environment.get("HOME") or "/nonexistent")
    parts = [
        environment.get("XDG_CONFIG_HOME") or str(home / ".config"),
        *(environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"),
        "/etc",
        environment.get("XDG_DATA_HOME") or str(home / ".local/share"),
        *(environment.get("XDG_DATA_DIRS") or ":".join(_DATA_FOLDERS)).split(":"),
        *_DATA_FOLDERS,
        "/usr/local/etc",
    ]
    if environment.get("CONDA_PREFIX"):
        parts.append(environment["CONDA_PREFIX"] + "/share")
    return [Path(part) / "vulkan" for part in dict.fromkeys(parts) if part]


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [path for path in files if path.is_file()]


def _is_usable(manifest: Path) -> bool:
    """Tell whether a manifest's library exists; the loader looks up names without a folder."""
    try:
        library = json.loads(manifest.read_text(encoding="utf-8"))["ICD"]["library_path"]
        return "/" not in library or (manifest.parent / library).exists()
    except (OSError, ValueError, KeyError, TypeError):  # TypeError: of a number, too
        return False
