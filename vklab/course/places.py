"""Folders of the course: the project, its labs, and their data."""

from __future__ import annotations

from pathlib import Path

from vklab import settings

__all__ = ["PROJECT", "labs_folder"]

PROJECT = Path(__file__).resolve().parent.parent.parent


def labs_folder() -> Path:
    """Return the folder of the labs: the project's, or the one that the LABS switch names."""
    return Path(str(settings.get("LABS")) or PROJECT / "labs").resolve()
