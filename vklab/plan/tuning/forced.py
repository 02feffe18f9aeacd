"""Read the switch VARIANT: one kernel for all products that it can compute, however small.

It tests a kernel with models that would not choose it. Visited by lab 08.
"""

from __future__ import annotations

import functools
import re

from vklab import settings
from vklab.errors import SettingError
from vklab.plan.tuning.tiles import Choice

_TEXT = re.compile(r"([a-z ]+?)(?: (\d+)x(\d+)x(\d+)(?: by (\d+)x(\d+))?)?(?: in (\d+) parts)?")


def choice() -> Choice | None:
    """Return the forced choice, None without one; SettingError for a text that names none."""
    return _parsed(str(settings.get("VARIANT")))


@functools.cache
def _parsed(text: str) -> Choice | None:
    if not text:
        return None
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise SettingError(
            f"VKLAB_VARIANT={text!r} names no kernel; write it as `vklab tune` "
            "does, such as 'tiled 64x64x16 by 4x4' or 'few rows in 4 parts'"
        )
    name, *shape, parts = match.groups()
    numbers = tuple(int(number) for number in shape if number)
    return name.replace(" ", "_"), numbers, int(parts or 1)
