"""Checks of what a program gives to `load`: switches of the environment, and the model's source.

Wrong values and names are reported when a model is loaded, not in a later run. Visited by lab 00.
"""

from __future__ import annotations

import difflib
import os
import warnings
from pathlib import Path
from typing import Any

from vklab import settings
from vklab.errors import ModelError, SettingError

# First bytes and suffix of a compiled model's file. As in PNG: a byte above 127, and line ends that
# a transfer in text mode would change.
MAGIC = b"\x93VKLAB\r\n"
SUFFIX = ".vklab"
PREFIX = "VKLAB_"
CHECKS = ("outputs", "nodes")
# Variables that are no switches: those of the launcher, of workers, and of the tests.
OTHERS = {"VKLAB_CHILD_BARE", "VKLAB_CHILD_SECONDS", "VKLAB_FUZZ", "VKLAB_INSIDE_ENVIRONMENT",
          "VKLAB_NO_BOOTSTRAP", "VKLAB_SWIFTSHADER", "VKLAB_TEST_ALL_SHAPES"}  # fmt: skip
_warned: set[str] = set()


def source(model: Any) -> Any:
    """Return the model as a path, bytes or proto: a file is read, and a buffer is copied.

    Raises SettingError for a wrong environment variable, ModelError for a source without a model.
    """
    _check_environment()
    is_file = hasattr(model, "read")
    read = model.read() if is_file and not hasattr(model, "encoding") else model
    if is_file and not isinstance(read, bytes):
        raise ModelError(
            f"the given {type(model).__name__} yields text; open it in binary mode, "
            'as open(path, "rb") does'
        )
    read = bytes(read) if isinstance(read, (bytearray, memoryview)) else read
    if isinstance(read, bytes) and not read:
        where = "; a file object is read from its position: seek(0) first" if is_file else ""
        raise ModelError(f"there is no model in the given {type(model).__name__}: 0 bytes{where}")
    return read


def is_compiled(model: object) -> bool:
    """Tell whether a model is a compiled one, by the first bytes or the suffix of its file."""
    if isinstance(model, bytes):
        return model.startswith(MAGIC)
    if not isinstance(model, (str, os.PathLike)):
        return False
    try:
        with open(model, "rb") as file:
            return Path(model).suffix == SUFFIX or file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def check_kind() -> str:
    """Return the values that CHECK compares, "" for none; SettingError for an unknown word."""
    wanted = str(settings.get("CHECK"))
    if wanted not in ("", *CHECKS):
        raise SettingError(f"VKLAB_CHECK={wanted!r} is not known; use 'outputs' or 'nodes'")
    return wanted


def refuse_copy(session: Any, protocol: Any = None) -> Any:
    """Raise TypeError: `pickle` and `copy` cannot copy a session, which holds device memory."""
    raise TypeError(
        f"{session!r} holds a device's memory and cannot be pickled or copied; load the model in "
        "each process, or compile it to a .vklab file, which loads faster"
    )


def _check_environment() -> None:
    for name in settings.SETTINGS:
        settings.get(name)
    check_kind()
    known = {setting.variable for setting in settings.SETTINGS.values()} | OTHERS
    for name in sorted(name for name in os.environ if name.startswith(PREFIX)):
        if name not in known | _warned:
            _warned.add(name)
            near = difflib.get_close_matches(name, sorted(known - OTHERS), 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`vklab settings` lists them"
            warnings.warn(f"{name} is set, but vklab has no such switch; {hint}", stacklevel=4)
