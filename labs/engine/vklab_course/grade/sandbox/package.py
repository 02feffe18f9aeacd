"""Installed copy of both packages for the sandbox: no labs, no checks, no working tree.

A wheel in the Python environment is mounted with it. From a source tree a copy is made once and
kept in the user's cache folder, with compiled bytecode.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

import vklab_labs
from vklab.base import store
from vklab_course.places import IMPORTED_FROM, PROJECT

__all__ = ["copy_packages", "in_source_tree", "installed_copy", "sources"]

# Folders that only a grader or an author uses.
LEFT_OUT = ("vklab_course/grade", "vklab_course/author")
KEPT = 3


def installed_copy() -> Path | None:
    """Return the folder with a copy of the packages, or None if the environment has wheels."""
    if not in_source_tree():
        return None
    default = Path(platformdirs.user_cache_dir("vklab", appauthor=False)) / "sandbox"
    root = store.folder("sandbox") or default
    target = root / _digest(sources())
    if not target.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=root, prefix=".writing-"))
        copy_packages(sources(), fresh)
        try:
            fresh.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(fresh)
        for old in sorted(root.glob("[!.]*"), key=os.path.getmtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return target


def in_source_tree() -> bool:
    """Tell whether vklab or the course is imported from a source tree, and not from a wheel."""
    return any(
        (folder / "pyproject.toml").is_file() for folder in (PROJECT, IMPORTED_FROM[-1].parent)
    )


def sources() -> dict[str, Path]:
    """Return the folders to copy, by their path in the copy."""
    project, engine = PROJECT, Path(vklab_labs.__file__).resolve().parent.parent
    found = {
        "vklab": project / "vklab",
        "shaders": project / "shaders",
        "vklab_course": engine / "vklab_course",
        "vklab_labs": engine / "vklab_labs",
    }
    found |= {
        f"vklab_labs/{path.name}": path
        for folder in vklab_labs.__path__
        for path in sorted(Path(folder).iterdir())
        if path.is_dir()
    }
    return {name: path for name, path in found.items() if path.is_dir()}


def copy_packages(folders: Mapping[str, Path], target: Path) -> None:
    """Copy packages and shaders of a source tree, as an installation has them.

    Args:
        folders: packages and shaders, by their path in the copy.
        target: an empty folder.
    """
    for name, source in folders.items():
        for path in _files(name, source):
            copied = target / name / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)
    (target / "data").mkdir()  # the place of a mount
    compileall.compile_dir(target, quiet=2, workers=1)
    target.chmod(0o755)


def _files(name: str, source: Path) -> list[Path]:
    return [
        path
        for path in sorted(source.rglob("*"))
        if path.is_file()
        and path.suffix != ".pyc"
        and "__pycache__" not in path.parts
        and not f"{name}/{path.relative_to(source)}".startswith(LEFT_OUT)
    ]


def _digest(found: Mapping[str, Path]) -> str:
    """Return a digest of names, sizes and times of change of the files to copy."""
    seen = hashlib.sha256()
    for name, source in found.items():
        for path in _files(name, source):
            facts = path.stat()
            seen.update(f"{path}|{facts.st_size}|{facts.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:20]
