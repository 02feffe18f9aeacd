"""Tensors of a file of weights: name, shape, block format, and bytes that stay in the file.

Both readers return them: `gguf` and `safetensors`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vklab.base import draw
from vklab.errors import ModelError
from vklab.ops import blocks


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """One tensor of a file: `data` are its bytes as rows of whole blocks, uint8 [..., bytes].

    The shape is row-major, so the last axis is the one along which blocks run.
    """

    name: str
    block_type: str
    shape: tuple[int, ...]
    data: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        block = blocks.block_format(self.block_type)
        wanted = (*self.shape[:-1], block.row_bytes(self.shape[-1] if self.shape else 1))
        if self.data.dtype != np.uint8 or self.data.shape != wanted:
            raise ModelError(
                f"tensor {self.name!r}: {self.shape} as {self.block_type} needs bytes "
                f"{list(wanted)}, not {self.data.dtype}{list(self.data.shape)}"
            )

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the tensor in its file."""
        return self.data.nbytes

    @property
    def words(self) -> np.ndarray:
        """Return the bytes as kernels read them: words of 32 bits, without a copy where possible.

        The words share the file's memory unless the tensor ends inside a word.
        """
        return blocks.words(self.data)

    def __str__(self) -> str:
        return f"{self.name}: {self.block_type}[{','.join(map(str, self.shape))}]"


def mapped(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the bytes of a file as a read-only array that the system reads when used.

    Raises FileNotFoundError, and ModelError for a folder or an empty file.
    """
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no model file {file}")
    if file.is_dir():
        raise ModelError(
            f"{file} is a folder, not a model file; `vklab gguf FOLDER -o NAME.gguf` "
            "converts one of Hugging Face"
        )
    if not file.stat().st_size:
        raise ModelError(f"{file} is empty, not a model file")
    return np.memmap(file, np.uint8, "r")


def require_apart(ranges: list[tuple[int, int, str]], owner: str) -> None:
    """Raise ModelError if two tensors share bytes.

    Args:
        ranges: first byte, byte after the last, and name of each tensor.
        owner: the file, for the message.
    """
    ordered = sorted(ranges)
    for (_, end, name), (start, _, other) in zip(ordered, ordered[1:], strict=False):
        if start < end:
            raise ModelError(f"{owner}: tensors {name!r} and {other!r} overlap at byte {start}")


def table_html(title: str, tensors: list[StoredTensor]) -> str:
    """Return a table of tensors as HTML: name, shape, format and bytes."""
    rows = [
        (t.name, "x".join(map(str, t.shape)), t.block_type, f"{t.size_bytes:,}") for t in tensors
    ]
    return draw.table_html(title, ("tensor", "shape", "format", "bytes"), rows)
