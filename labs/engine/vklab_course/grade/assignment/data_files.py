"""Data files of a release: those that its texts name, and those of the modules that they import."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from vklab_course import places
from vklab_labs.shared import recorded_graphs

__all__ = ["copy_to", "modules_of", "names_in"]

# `vklab lab` classifies digits before it opens JupyterLab.
ALWAYS = ("digits.npz", "digits_cnn.onnx")
FOLDERS = re.compile(r"""\bdata\(\s*["']([\w/-]+)["']""")
# Any text that may be a file's name, but for programs and pages; nothing outside of the folder.
FILES = re.compile(r"""["'](?:\w[\w-]*/)*\w[\w.-]*\.(?!py|md)\w+["']""")
IMPORTED = re.compile(r"^\s*from (vklab_labs[.\w]*) import ([^(\n]+|\([^)]*\))", re.MULTILINE)
GRAPHS = recorded_graphs.__name__  # opens files by names that it computes


def modules_of(texts: Iterable[str]) -> dict[str, str]:
    """Return name and text of the labs' modules that texts import, directly or through others."""
    found: dict[str, str] = {}
    waiting = list(texts)
    while waiting:
        for name in _imported(waiting.pop()):
            path = None if name in found else _path_of(name)
            if path is not None:
                found[name] = path.read_text("utf-8")
                waiting.append(found[name])
    return found


def _imported(text: str) -> Iterator[str]:
    """Yield each module that a text imports, and what it imports from one: that may be a module."""
    for module, names in IMPORTED.findall(text):
        yield module
        for part in names.strip("()").split(","):
            words = part.split()
            if words:
                yield f"{module}.{words[0]}"


def _path_of(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a function of a module
        return None
    return Path(spec.origin) if spec and spec.origin else None


def names_in(texts: Iterable[str]) -> set[str]:
    """Return the files and folders of `data/` that texts, and the modules behind them, name."""
    every = list(texts)
    modules = modules_of(every)
    named = set(ALWAYS)
    for text in (*every, *modules.values()):
        named |= {name[1:-1] for name in FILES.findall(text)} | {*FOLDERS.findall(text)}
    if GRAPHS in modules:
        named |= {f"graphs/{name}.onnx" for name in recorded_graphs.NAMES}
    return {name for name in named if _source_of(name)}


def _source_of(name: str) -> Path | None:
    homes = (places.labs_folder().parent / "data", places.PROJECT / "data")
    return next((home / name for home in homes if (home / name).exists()), None)


def copy_to(folder: Path, texts: Iterable[str]) -> None:
    """Copy what `names_in` finds into a release's folder `data`."""
    for name in sorted(names_in(texts)):
        source, target = _source_of(name), folder / "data" / name
        assert source is not None
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
