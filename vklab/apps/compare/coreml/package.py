"""Core ML model on disk: an .mlpackage folder with a manifest, or an .mlmodel file.

Finds the model and its weight files; nothing outside of the package is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab.apps.compare.coreml import blob, protobuf
from vklab.errors import ModelError, UnusedWarning

MOST_BYTES = 1 << 31  # of a protobuf message
PLACE = "@model_path/"


@dataclass(frozen=True)
class Package:
    """A parsed Core ML model and the folder to which its weight files are relative."""

    path: Path
    model: Any
    folder: Path | None
    _files: dict[str, blob.WeightFile] = field(default_factory=dict, compare=False, repr=False)

    def warn_unused(self) -> None:
        """Warn of fields of the file that nothing reads and nothing is known of."""
        if left := protobuf.unlisted(self.model):
            UnusedWarning.issue(f"{self.path}: nothing reads the fields {', '.join(left[:6])}"
                                f"{' and more' if left[6:] else ''}; results may differ from Core "
                                "ML's")  # fmt: skip

    def weights(self, name: str) -> blob.WeightFile:
        """Return a weight file by the name that the program gives it."""
        if name not in self._files:
            if self.folder is None:
                raise ModelError(f"{self.path} is a single file, but its weights are in {name!r}; "
                                 "use the .mlpackage")  # fmt: skip
            relative = name.removeprefix(PLACE)
            path = _inside(self.folder, relative, f"{self.path}: weight file {name!r}")
            self._files[name] = blob.WeightFile.open(path, relative)
        return self._files[name]


def open_package(path: Path | str) -> Package:
    """Return the model of an .mlpackage or .mlmodel.

    Raises FileNotFoundError, and ModelError for a damaged package.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no Core ML model {path}")
    file = _model_file(path) if path.is_dir() else path
    size = file.stat().st_size
    if size >= MOST_BYTES:
        raise ModelError(f"{file} has {size} bytes; a protobuf message has less than {MOST_BYTES}")
    model = protobuf.parse(file.read_bytes(), str(path))
    return Package(path, model, file.parent if path.is_dir() else None)


def _model_file(path: Path) -> Path:
    """Return the model file that a package's manifest names."""
    manifest = path / "Manifest.json"
    if not manifest.is_file():
        raise ModelError(f"{path} has no Manifest.json, so it is no .mlpackage")
    try:
        content = json.loads(manifest.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{manifest} is no JSON: {error}") from error
    items = content.get("itemInfoEntries") if isinstance(content, dict) else None
    root = content.get("rootModelIdentifier") if isinstance(content, dict) else None
    if not isinstance(items, dict) or not isinstance(root, str):
        raise ModelError(f"{manifest} lacks itemInfoEntries or rootModelIdentifier")
    item = items.get(root)
    relative = item.get("path") if isinstance(item, dict) else None
    if not isinstance(relative, str):
        raise ModelError(f"{manifest}: rootModelIdentifier {root!r} is no item with a path; items: "
                         f"{sorted(items)}")  # fmt: skip
    return _inside(path / "Data", relative, f"{manifest}: item {root!r}")


def _inside(folder: Path, relative: str, owner: str) -> Path:
    """Return the path of an existing file inside a folder."""
    if "\0" in relative:
        raise ModelError(f"{owner}: {relative!r} is no file name (NUL byte)")
    try:
        path = (folder / relative).resolve()
    except UnicodeEncodeError as error:  # half of a pair of surrogates, or not in the locale
        raise ModelError(f"{owner}: {relative!r} is no file name ({error.reason})") from error
    if not path.is_relative_to(folder.resolve()):
        raise ModelError(f"{owner}: {relative!r} leaves the package")
    if not path.is_file():
        raise ModelError(f"{owner}: {relative!r} is missing in the package")
    return path
