"""Noted: a mapping that remembers which of its entries were asked for.

A reader that does not use a part of a file can say so, without a second list of what it uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vklab.errors import ModelError

MOST_BYTES = 200_000_000


class Noted(dict[str, Any]):
    """Entries of a file by name; `[]` and `get` note the name, iteration and `in` do not.

    Attributes:
        read: the names that were asked for.
        is_told: whether a warning has named the others.
    """

    def __init__(self, entries: Mapping[str, Any] | None = None) -> None:
        super().__init__(entries or {})
        self.read: set[str] = set()
        self.is_told = False

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry, or a default; the name is noted."""
        self.read.add(name)
        return super().get(name, default)

    @property
    def unread(self) -> dict[str, Any]:
        """Return the entries that nothing has asked for."""
        return {name: value for name, value in self.items() if name not in self.read}


def noted(entries: Mapping[str, Any]) -> Noted:
    """Return entries as the Noted that they are."""
    assert isinstance(entries, Noted), "the reader of the file has made the mapping"
    return entries


def require(
    entries: Mapping[str, Any], key: str, plain: tuple[Any, ...], owner: str,
    what: str = "can be computed",
) -> None:  # fmt: skip
    """Raise ModelError for an entry with a value, or with elements, other than some plain ones.

    Args:
        entries: entries of a file.
        key: the entry's name; if there is none, it has the first plain value.
        plain: the values that ask for nothing that vklab lacks.
        owner: the file, for the message.
        what: what vklab can do with plain values alone.
    """
    value = entries.get(key, plain[0])
    items = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if not all(item in plain for item in items):
        raise ModelError(
            f"{owner} has {key}={short(value)}; only {' or '.join(map(repr, plain))} {what}"
        )


def short(value: Any) -> str:
    """Return a value as short text, for messages and tables."""
    is_long = isinstance(value, (list, tuple, np.ndarray)) and len(value) > 8
    return f"{len(value)} elements" if is_long else f"{value!r:.40}"


def read_json(path: Path) -> Noted:
    """Return the object of a JSON file, which notes the entries that are read.

    Raises FileNotFoundError, and ModelError for a file that is too long or no JSON object.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no {path.name} in {path.parent}")
    if path.stat().st_size > MOST_BYTES:
        raise ModelError(f"{path} has more than {MOST_BYTES} bytes")
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no JSON: {error!s:.120}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}, not a JSON object")
    return Noted(found)
