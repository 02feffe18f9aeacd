"""Hostile answers as data: hostile_answers.txt by name, and those that spoil their own kernel."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["HOSTILE", "LASTING"]

HOSTILE: dict[str, str] = {}
LASTING: set[str] = set()

_text = (Path(__file__).resolve().parent / "hostile_answers.txt").read_text("utf-8")
for _piece in re.split(r"^=== ", _text, flags=re.M)[1:]:
    _title, _, _source = _piece.partition("\n")
    _name = _title.removesuffix(" *")
    HOSTILE[_name] = _source.strip("\n")
    if _title != _name:
        LASTING.add(_name)
