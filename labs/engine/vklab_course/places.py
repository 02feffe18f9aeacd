"""Folders of the course: the project, its labs, and their data."""

from __future__ import annotations

import os
from pathlib import Path

import vklab
from vklab import settings

__all__ = ["IMPORTED_FROM", "PROJECT", "VARIANTS", "adopt_release", "labs_folder", "search_path",
           "unplaced"]  # fmt: skip

PROJECT = Path(vklab.__file__).resolve().parent.parent
# Folders of vklab and of the course: one of an installation, or two of a source tree.
IMPORTED_FROM = tuple(dict.fromkeys((PROJECT, Path(__file__).resolve().parent.parent)))
VARIANTS = "variants.json"  # in a release's labs: the variant of each exercise


def labs_folder() -> Path:
    """Return the folder of the labs: that of the LABS switch, else the project's.

    Its `checks/` are executed: a folder is never searched for here, or a grader who works among
    submissions would execute theirs. See `adopt_release`.
    """
    named = str(settings.get("LABS"))
    return Path(named).resolve() if named else (PROJECT / "labs").resolve()


def adopt_release() -> None:
    """Set the LABS switch to the release in which the working directory lies, if it is not set.

    For students only: a notebook runs in its own folder, `labs/` or `work/` of a release. The
    switch is set as an environment variable, so that children see it, too.
    """
    found = None if settings.get("LABS") else _released()
    if found is not None:
        os.environ[settings.SETTINGS["LABS"].variable] = str(found)


def search_path(inherited: bool = True) -> str:
    """Return the PYTHONPATH of a child process that imports vklab and the course."""
    more = os.environ.get("PYTHONPATH", "") if inherited else ""
    return os.pathsep.join([*map(str, IMPORTED_FROM), *filter(None, [more])])


def unplaced() -> bool:
    """Tell whether nothing says which labs are meant: no switch, not the project."""
    return not (settings.get("LABS") or Path.cwd().resolve().is_relative_to(PROJECT))


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
