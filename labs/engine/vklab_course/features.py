"""Device features that an exercise needs, and a sentence on the missing ones."""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import SetupError
from vklab.runtime import open_devices

__all__ = ["missing_features"]


def missing_features(needs: Sequence[str]) -> str:
    """Return the reason why the device in use cannot run an exercise, or "" if it can."""
    if not needs:
        return ""
    try:
        info = open_devices.select()
    except SetupError as error:
        return f"skipped: {error}"
    missing = [name for name in needs if name not in info.features]
    if not missing:
        return ""
    return f"skipped: {info.name} has no {', '.join(missing)}; this needs it"
