"""Folders of the course: the project, its labs, and their data."""

from __future__ import annotations

from pathlib import Path

from vklab import settings

__all__ = ["PROJECT", "VARIANTS", "labs_folder", "unplaced"]

PROJECT = Path(__file__).resolve().parent.parent.parent
VARIANTS = "variants.json"  # in a release's labs: the variant of each exercise


def labs_folder() -> Path:
    """Return the folder of the labs.

    The LABS switch names it. Otherwise it is that of the release in which the working directory
    lies: a notebook runs in its own folder, `labs/` or `work/` of a release. Otherwise it is the
    project's.
    """
    named = str(settings.get("LABS"))
    return Path(named).resolve() if named else _released() or (PROJECT / "labs").resolve()


def unplaced() -> bool:
    """Tell whether nothing says which labs are meant: no switch, no release, not the project."""
    here = Path.cwd().resolve()
    return not (settings.get("LABS") or _released() or here.is_relative_to(PROJECT))


def _released() -> Path | None:
    """Return the labs of the nearest release at or above the working directory, or None."""
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if folder == PROJECT:
            break
        for labs in (folder, folder / "labs"):
            if (labs / VARIANTS).is_file() and (labs / "checks").is_dir():
                return labs
    return None
