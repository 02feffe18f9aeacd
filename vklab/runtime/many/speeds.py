"""How fast the devices are, as measured and kept in the user's cache folder.

Placement weighs it; for a device that was never measured, `plan/place/costs.py` guesses. Visited by
lab 13.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import vklab
from vklab import settings, store
from vklab.plan.place import costs
from vklab.plan.place.costs import DeviceCosts
from vklab.types import DeviceInfo

__all__ = ["all_kept", "keep", "kept", "known"]

MOST_SPEED = 1e18  # read from a file: more is damage


def kept(info: DeviceInfo) -> DeviceCosts | None:
    """Return the speed of a device as it was measured on this machine; None if it was not."""
    data = None if settings.get("DISABLE_MEASURED") else store.read(_path(info))
    try:
        numbers = json.loads(data or b"{}")
        found = DeviceCosts(**numbers, is_measured=True)
        sound = (isinstance(n, (int, float)) and 0 < n < MOST_SPEED for n in numbers.values())
        return found if all(sound) else None
    except (TypeError, ValueError):  # nothing is kept, or damaged, or by another version
        return None


def known(info: DeviceInfo) -> DeviceCosts:
    """Return the speed of a device, measured or guessed."""
    return kept(info) or costs.estimate(info)


def all_kept(infos: Sequence[DeviceInfo]) -> dict[int, DeviceCosts]:
    """Return the speeds that were measured, by the place of the device."""
    found = ((place, kept(info)) for place, info in enumerate(infos))
    return {place: costs for place, costs in found if costs}


def keep(info: DeviceInfo, speeds: DeviceCosts) -> None:
    """Write the measured speed of a device."""
    numbers = {name: value for name, value in asdict(speeds).items() if name != "is_measured"}
    store.write(_path(info), json.dumps(numbers).encode())


def _path(info: DeviceInfo) -> Path | None:
    folder = store.folder("speeds")
    name = f"{info.uuid}-{info.vendor_id:x}-{info.device_id:x}-{info.driver_version:x}"
    return folder / f"{name}-{vklab.__version__}.json" if folder else None
