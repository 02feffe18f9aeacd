"""Installed copy of the package for the sandbox: no labs, no checks, no working tree.

A wheel in the Python environment is mounted with it. From a source tree a copy is made once and
kept in the user's cache folder, with compiled bytecode.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import platformdirs

import vklab
from vklab import store
from vklab.course.places import PROJECT

__all__ = ["copy_package", "installed_copy"]

# Folders of the package that only a grader or an author uses.
LEFT_OUT = ("course/grade", "course/author")
KEPT = 3


def installed_copy() -> Path | None:
    """Return the folder with a copy of the package, or None if the environment has a wheel."""
    source = Path(vklab.__file__).resolve().parent
    if not (PROJECT / "pyproject.toml").is_file():
        return None
    default = Path(platformdirs.user_cache_dir("vklab", appauthor=False)) / "sandbox"
    root = store.folder("sandbox") or default
    target = root / _digest(source)
    if not target.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=root, prefix=".writing-"))
        copy_package(source, fresh)
        try:
            fresh.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(fresh)
        for old in sorted(root.glob("[!.]*"), key=os.path.getmtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return target


def copy_package(source: Path, target: Path) -> None:
    """Copy the package and the shaders of a source tree, as an installation has them."""
    def left_out(folder: str, names: list[str]) -> set[str]:
        here = Path(folder).relative_to(source)
        return {n for n in names if n == "__pycache__" or (here / n).as_posix() in LEFT_OUT}

    shutil.copytree(source, target / "vklab", ignore=left_out)
    shaders = source.parent / "shaders"
    if shaders.is_dir():
        shutil.copytree(shaders, target / "shaders")
    (target / "data").mkdir()  # the place of a mount
    compileall.compile_dir(target / "vklab", quiet=2, workers=1)
    target.chmod(0o755)


def _digest(source: Path) -> str:
    """Return a digest of names, sizes and times of change of the files to copy."""
    seen = hashlib.sha256()
    for root in (source, source.parent / "shaders"):
        for path in sorted(root.rglob("*")):
            unused = path.relative_to(root).as_posix().startswith(LEFT_OUT)
            if path.is_file() and path.suffix != ".pyc" and not unused:
                facts = path.stat()
                seen.update(f"{path}|{facts.st_size}|{facts.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:20]
