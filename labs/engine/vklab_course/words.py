"""Texts for values and errors: short, the same in every run, and safe with hostile objects."""

from __future__ import annotations

import difflib
import linecache
import re
import reprlib
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vklab
import vklab_labs

__all__ = ["array_text", "code", "error_text", "near", "never_used", "short", "short_message",
           "whole"]  # fmt: skip

PACKAGES = (
    *(str(Path(file).resolve().parent) for file in (vklab.__file__, __file__)),
    *vklab_labs.__path__,
)
LIMIT = 160
NUMBERS = {"bool", "float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32",
           "uint32", "int64", "uint64"}  # fmt: skip
_repr = reprlib.Repr()  # (takes its limits as arguments from Python 3.12 on)
_repr.maxlist = _repr.maxtuple = _repr.maxset = 8
_repr.maxstring, _repr.maxother = 80, 120


def short(value: Any) -> str:
    """Return a short text for a value, without addresses, long floats or long lists."""
    try:
        if isinstance(value, np.ndarray):
            return array_text(value)
        if isinstance(value, float | np.floating):
            return f"{float(value):.6g}"
        if isinstance(value, np.generic):
            return repr(value.item())
        if isinstance(value, tuple | list) and all(isinstance(v, int | float) for v in value):
            inner = ", ".join(short(v) for v in value[:8]) + (", ..." if len(value) > 8 else "")
            return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
        if callable(value) and hasattr(value, "__name__"):
            return whole(f"the function {value.__name__}")
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", _repr.repr(value))
    except Exception as error:
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    text = whole(text)
    return text if len(text) <= LIMIT else text[: LIMIT - 3] + "..."


def code(value: Any) -> str:
    """Return a value as Python code, with `np` for NumPy. Raises TypeError for other objects."""
    if isinstance(value, np.ndarray):
        if value.dtype.name not in NUMBERS:
            raise TypeError(f"no code for an array of {value.dtype}")
        if not value.size:
            return f"np.zeros({value.shape}, np.{value.dtype})"
        return f"np.array({_elements(value)}, np.{value.dtype})"
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating):
        return str(value) if np.isfinite(value) else f"float('{value}')"
    if value is None or isinstance(value, str | bytes):
        return repr(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(code, value)) + ("," if len(value) == 1 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner.rstrip(',')}]"
    if isinstance(value, set | frozenset):
        inner = f"{{{', '.join(sorted(map(code, value)))}}}" if value else ""
        return inner if value and isinstance(value, set) else f"{type(value).__name__}({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{code(key)}: {code(one)}" for key, one in value.items()) + "}"
    raise TypeError(f"no code for a {type(value).__name__}")


def _elements(array: np.ndarray) -> str:
    if not array.shape:
        return code(array[()])
    return f"[{', '.join(map(_elements, array))}]"


def whole(text: str) -> str:
    """Return text with halves of characters written out: no file and no terminal takes them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def array_text(array: np.ndarray) -> str:
    """Return an array's dtype, shape and first elements as text."""
    flat = array.reshape(-1)[:6]
    first = ", ".join(short(item) for item in flat) + (", ..." if array.size > 6 else "")
    return f"{array.dtype}{list(array.shape)} [{first}]"


def near(name: str, names: Iterable[str]) -> str:
    """Return ` Did you mean ...?` with names like this one, or "" if there is none."""
    known = {one.casefold(): one for one in names}
    like = [known[one] for one in difflib.get_close_matches(name.casefold(), known, 3, 0.5)]
    listed = ", ".join(repr(one) for one in like[:-1]) + (" or " if like[:-1] else "")
    return f" Did you mean {listed}{like[-1]!r}?" if like else ""


def never_used(names: Sequence[str]) -> str:
    """Return a sentence on unused names of a kernel: `x and count are never used`."""
    *first, last = names
    return f"{', '.join(first)} and {last} are never used" if first else f"{last} is never used"


def error_text(error: BaseException) -> str:
    """Return an error's type, its message and the student's line that raised it, as text."""
    message = short_message(error)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(PACKAGES) and "<frozen" not in frame.filename:
            line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            if line:
                return f"{text}   (in {frame.name}, line {frame.lineno}: {line[:80]})"
    return text


def short_message(error: BaseException) -> str:
    """Return an error's message, shortened and without memory addresses."""
    try:
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", str(error))
    except Exception:
        return "(its message cannot be shown)"
    text = whole(text)
    return text if len(text) <= 400 else text[:397] + "..."
