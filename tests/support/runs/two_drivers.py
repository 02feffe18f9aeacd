"""lavapipe and SwiftShader in one process: two Vulkan devices on a machine without a GPU.

On a machine with two GPUs, TWO_DEVICES=0,1 runs these tests on the devices of these indices.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from support.runs.child import python

PLACES = [
    "/usr/lib/chromium/vk_swiftshader_icd.json",
    "/usr/lib/chromium-browser/vk_swiftshader_icd.json",
    "/usr/lib64/chromium-browser/vk_swiftshader_icd.json",
    "/opt/google/chrome/vk_swiftshader_icd.json",
]  # fmt: skip
DRIVERS = Path("/usr/share/vulkan/icd.d")


def manifests() -> tuple[str, str]:
    """Return the manifests of SwiftShader and lavapipe; skip where one is missing."""
    places = [os.environ.get("VKLAB_SWIFTSHADER", ""), *PLACES]
    swiftshader = next((place for place in places if place and Path(place).is_file()), "")
    if not swiftshader:
        pytest.skip("SwiftShader is not installed (Debian: chromium-common; or VKLAB_SWIFTSHADER)")
    lavapipe = next((str(path) for path in sorted(DRIVERS.glob("lvp_icd*.json"))), "")
    if not lavapipe:
        pytest.skip("lavapipe is not installed (Debian: mesa-vulkan-drivers)")
    return lavapipe, swiftshader


@functools.cache
def drivers() -> dict[str, str]:
    """Return the variables that make the loader offer both drivers, and no other."""
    if os.environ.get("TWO_DEVICES"):
        return {}
    joined = os.pathsep.join(manifests())
    return {"VK_DRIVER_FILES": joined, "VK_ICD_FILENAMES": joined}


def both(code: str, *arguments: object, **environment: str) -> str:
    """Run code in a process that sees both drivers."""
    return python(code, *arguments, **drivers(), **environment)
