"""Read JSON files of a stranger's folder: objects only, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path

from vklab.apps.llm.noted import Noted
from vklab.errors import ModelError

MOST_BYTES = 200_000_000


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
