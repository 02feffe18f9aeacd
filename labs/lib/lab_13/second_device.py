"""Find a second Vulkan device: a GPU, or the second of two drivers for processors.

Visited by labs 13 and 13b.
"""

from __future__ import annotations

import os
from pathlib import Path

import vklab
from vklab.apps.bootstrap import system

__all__ = ["second_device"]

MANIFESTS = Path("/usr/share/vulkan/icd.d")
MANIFEST = "vk_swiftshader_icd.json"


def second_device() -> dict[str, str] | None:
    """Return the variables under which a process sees two devices, or None if there is no way.

    Without a second device, lavapipe and SwiftShader are two, where both are installed. The
    variable VKLAB_SWIFTSHADER names the manifest of another SwiftShader than the browser's.
    """
    if sum(not info.refusal for info in vklab.devices()) > 1:
        return {}
    browsers = (f"{folder}/{MANIFEST}" for folder in system.SWIFTSHADER_FOLDERS)
    places = (os.environ.get("VKLAB_SWIFTSHADER", ""), *browsers)
    swiftshader = next((place for place in places if place and Path(place).is_file()), "")
    lavapipe = next(iter(sorted(MANIFESTS.glob("lvp_icd*.json"))), None)
    if not swiftshader or lavapipe is None:
        return None
    joined = os.pathsep.join((str(lavapipe), swiftshader))
    return {"VK_DRIVER_FILES": joined, "VK_ICD_FILENAMES": joined}
