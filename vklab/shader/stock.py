"""Stock kernels: SPIR-V in the wheel, for machines without a shader compiler.

A file's name is a digest of text, defines and target, so an edited kernel matches none.
`stock_builder` writes the files. Visited by lab 05.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "_spirv"
Defines = tuple[tuple[str, str], ...]


def key(text: str, defines: Defines, target: str) -> str:
    """Return the file name of a variant without its suffix: a digest of the arguments.

    Args:
        text: expanded text of the kernel.
        defines: pairs of name and value, in any order.
        target: compiler target.
    """
    joined = "\0".join([text, target, *(f"{name}={value}" for name, value in sorted(defines))])
    return hashlib.sha256(joined.encode()).hexdigest()


def read(stock_key: str) -> bytes | None:
    """Return the shipped SPIR-V of a variant, or None."""
    path = FOLDER / f"{stock_key}.spv"
    return path.read_bytes() if path.is_file() else None
