"""Measured speeds of devices, kept in the user's cache folder for placement.

For a device that was never measured, `plan/place/costs.py` estimates them. Visited by lab 13.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vklab import settings
from vklab.base import store
from vklab.base.version import __version__
from vklab.plan.place import costs
from vklab.plan.place.costs import DeviceCosts
from vklab.types import DeviceInfo

MOST_SPEED = 1e18  # a larger number in a file means that the file is damaged


def kept(info: DeviceInfo) -> DeviceCosts | None:
    """Return the measured speeds of a device; None if it was not measured on this machine."""
    data = None if settings.get("DISABLE_MEASURED") else store.read(_path(info))
    try:
        numbers = json.loads(data or b"{}")
        measured = DeviceCosts(**numbers, is_measured=True)
        sound = (isinstance(n, (int, float)) and 0 < n < MOST_SPEED for n in numbers.values())
        return measured if all(sound) else None
    except (TypeError, ValueError):  # no file, a damaged one, or one of another version
        return None


def known(info: DeviceInfo) -> DeviceCosts:
    """Return the speeds of a device, measured or estimated."""
    return kept(info) or costs.estimate(info)


def all_kept(infos: Sequence[DeviceInfo]) -> dict[int, DeviceCosts]:
    """Return the measured speeds by the device's number; devices without are left out."""
    measured = ((number, kept(info)) for number, info in enumerate(infos))
    return {number: costs for number, costs in measured if costs}


def keep(info: DeviceInfo, speeds: DeviceCosts) -> None:
    """Write the measured speeds of a device to the cache folder."""
    numbers = {name: value for name, value in asdict(speeds).items() if name != "is_measured"}
    store.write(_path(info), json.dumps(numbers).encode())


def _path(info: DeviceInfo) -> Path | None:
    folder = store.folder("speeds")
    name = f"{info.uuid}-{info.vendor_id:x}-{info.device_id:x}-{info.driver_version:x}"
    return folder / f"{name}-{__version__}.json" if folder else None
