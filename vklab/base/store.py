"""Files of the user's cache folder: complete or absent, even while several processes write.

A file ends with a digest, so a damaged one counts as absent. It is written under a temporary name
and renamed, so no reader sees half of it. A folder that cannot be written is no error: one warning
tells of it. Visited by lab 05.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import secrets
import warnings
from pathlib import Path

import platformdirs

from vklab import settings

log = logging.getLogger(__name__)


def folder(kind: str) -> Path | None:
    """Return the folder for one kind of file, or None if caches are switched off."""
    if settings.get("DISABLE_CACHE"):
        return None
    root = str(settings.get("CACHE")) or platformdirs.user_cache_dir("vklab", appauthor=False)
    return Path(root) / kind


def read(path: Path | None) -> bytes | None:
    """Return the bytes of a file from `write`; None if it is absent, unreadable or damaged."""
    if path is None:
        return None
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    data, digest = stored[:-32], stored[-32:]
    return data if hashlib.sha256(data).digest() == digest else None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it; raise OSError, and leave no part of it."""
    temporary = path.with_name(f".writing-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path | None, data: bytes) -> bool:
    """Store bytes under a path; return whether the file was written."""
    if path is None:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data + hashlib.sha256(data).digest())
    except OSError as error:
        _warn(folder("") or path.parent, error.strerror or str(error))
        return False
    return True


@functools.cache  # once for each folder and reason
def _warn(root: Path, reason: str) -> None:
    text = (
        f"the cache {root} cannot be written ({reason}), so every start compiles again; name "
        "another folder in VKLAB_CACHE, or switch caches off with VKLAB_DISABLE_CACHE=1"
    )
    log.warning("%s", text)
    warnings.warn(text, stacklevel=99)  # of no line: whoever writes first may be any thread
