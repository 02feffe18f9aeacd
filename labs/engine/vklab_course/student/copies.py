"""Student's copies of the labs in `work/`: made once, never overwritten.

The folder `work/.lab/` has the labs as they were copied, the base of an update. Visited by lab 00.
"""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["HIDDEN", "PAGES", "copy_file", "copy_labs"]

HIDDEN = ".lab"
# Pages that notebooks link to; nobody edits them, so that each copy is today's.
PAGES = ("GLOSSARY.md", "SLANG.md")


def copy_labs(labs: Path, work: Path) -> list[str]:
    """Copy the notebooks that the student does not have yet, and return their names.

    The pages that notebooks link to are copied every time.
    """
    work.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        if (labs / page).is_file():
            copy_file(labs / page, work / page)
    new = [path for path in sorted(labs.glob("*.ipynb")) if not (work / path.name).exists()]
    for path in new:
        copy_file(path, work / path.name)
        copy_file(path, work / HIDDEN / path.name)
    return [path.name for path in new]


def copy_file(source: Path, target: Path) -> None:
    """Copy a file whole or not at all; make its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.copyfile(source, partial)
    partial.replace(target)
