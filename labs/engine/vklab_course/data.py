"""Paths of the labs' data and models."""

from __future__ import annotations

from pathlib import Path

from vklab.errors import SetupError
from vklab_course.places import PROJECT, labs_folder

__all__ = ["data"]

FOLDER = PROJECT / "data"


def data(name: str) -> Path:
    """Return the path of a file or folder in `data/` of a release or of the project."""
    released = labs_folder().parent / "data" / name
    path = FOLDER / name
    if released.exists() or path.exists():
        return released if released.exists() else path
    if not FOLDER.is_dir():
        raise SetupError(
            "the labs and their data are in the source tree only",
            "clone the repository and run python3 -m vklab lab in it",
        )
    names = sorted(p.name for p in FOLDER.iterdir() if p.suffix in (".onnx", ".npz"))
    raise FileNotFoundError(f"there is no data file {name!r}; there are {', '.join(names)}")
