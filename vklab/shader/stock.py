"""SPIR-V that travels with the wheel, for machines without a shader compiler.

A file's name is a digest of text, defines and target, so an edited kernel finds none.
`stock_builder` makes the files.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["FOLDER", "key", "read"]

FOLDER = Path(__file__).resolve().parent.parent / "_spirv"
Defines = tuple[tuple[str, str], ...]


def key(text: str, defines: Defines, target: str) -> str:
    """Return the name under which a variant is stored: a digest of all that decides it."""
    joined = "\0".join([text, target, *(f"{name}={value}" for name, value in sorted(defines))])
    return hashlib.sha256(joined.encode()).hexdigest()


def read(stock_key: str) -> bytes | None:
    """Return the shipped SPIR-V of a variant, or None."""
    path = FOLDER / f"{stock_key}.spv"
    return path.read_bytes() if path.is_file() else None
