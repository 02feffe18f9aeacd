"""Paths of the labs' data and models."""

from __future__ import annotations

from pathlib import Path

from vklab.course.places import PROJECT
from vklab.errors import SetupError

__all__ = ["data"]

FOLDER = PROJECT / "data"


def data(name: str) -> Path:
    """Return the path of a file in `data/`, from any working folder."""
    path = FOLDER / name
    if path.is_file():
        return path
    if not FOLDER.is_dir():
        raise SetupError("the labs and their data are in the source tree only",
                         "clone the repository and run python3 -m vklab lab in it")  # fmt: skip
    names = sorted(p.name for p in FOLDER.iterdir() if p.suffix in (".onnx", ".npz"))
    raise FileNotFoundError(f"there is no data file {name!r}; there are {', '.join(names)}")
