"""Student's copies of the labs in `work/`: made once, never overwritten.

The folder `work/.lab/` has the labs as they were copied, the base of an update. Visited by lab 00.
"""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["HIDDEN", "copy_file", "copy_labs", "pages"]

HIDDEN = ".lab"


def pages(labs: Path) -> list[str]:
    """Return the pages that notebooks link to, and the pictures of these pages.

    Nobody edits them, so that each copy is today's.
    """
    found = [*labs.glob("GLOSSARY.md"), *labs.glob("SLANG.md"), *labs.glob("inserts/*.*")]
    return [path.relative_to(labs).as_posix() for path in sorted(found)]


def copy_labs(labs: Path, work: Path) -> list[str]:
    """Copy the notebooks that the student does not have yet, and return their names.

    The pages that notebooks link to are copied every time.
    """
    work.mkdir(parents=True, exist_ok=True)
    for page in pages(labs):
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
