"""Changed copies of the package's shaders, in a folder for the SHADERS switch."""

from __future__ import annotations

import re
from pathlib import Path

from support.graphs.small_models import ROOT


def write_function(folder: Path, name: str, expression: str) -> Path:
    """Make a folder in which an element-wise function returns another expression of `a`."""
    text = (ROOT / "shaders" / "lib" / "elementwise.slang").read_text("utf-8")
    head = rf"(public (?:Real|float) {name}<[^>]*>\([^)]*\)) \{{.*\}}"
    changed, count = re.subn(head, rf"\1 {{ return {expression}; }}", text)
    assert count == 1, f"lib/elementwise.slang has {count} functions {name} in one line"
    return _write(folder / "lib" / "elementwise.slang", changed)


def write_kernel(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """Make a folder in which a kernel has some pieces of text replaced."""
    text = (ROOT / "shaders" / "ops" / f"{name}.slang").read_text("utf-8")
    for old, new in filter(any, changes):
        assert old in text, f"{old!r} is not in {name}.slang"
        text = text.replace(old, new)
    return _write(folder / "ops" / f"{name}.slang", text)


def write_wrong_store(folder: Path, name: str) -> Path:
    """Make a folder in which a kernel's last stores, of ones and fours, are off by one per cent."""
    text = changed = (ROOT / "shaders" / "ops" / f"{name}.slang").read_text("utf-8")
    for store in (" STORE(", " STORE_FOURS("):  # not Y_STORE, which takes a value alone
        head, found, tail = changed.rpartition(store)
        if found:
            index, _, value = tail.partition(", ")
            changed = f"{head}{store}{index}, 1.01 * {value}"
    if changed != text:
        return _write(folder / "ops" / f"{name}.slang", changed)
    head, _, tail = text.rpartition("y_buffer[")
    index, _, rest = tail.partition("] = ")
    value, _, after = rest.partition(";")
    changed = f"{head}y_buffer[{index}] = Y(1.01 * ({value}));{after}"
    return _write(folder / "ops" / f"{name}.slang", changed)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path.parent.parent
