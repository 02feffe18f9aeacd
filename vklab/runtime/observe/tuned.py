"""Measured choices of kernels, kept in the user's cache folder; `tuning` measures them.

One file for each class of products, so that two processes lose nothing. What is damaged, of another
device or driver, or about kernels that have changed since, is ignored. Visited by lab 08.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vklab import settings
from vklab.base import store
from vklab.base.version import __version__
from vklab.errors import VklabError
from vklab.shader import compiler
from vklab.types import DeviceInfo

MOST_PARTS = 1 << 12
Choice = tuple[str, tuple[int, ...], int]  # as in `plan.tuning.tiles`, an optional folder


@dataclass(frozen=True)
class MeasuredChoice:
    """Fastest choice for one class of products, with its time and that of the expected choice.

    Attributes:
        problem: the class, named by `plan.tuning.problems`.
        choice: rule, tile and parts.
        kernels: the kernels that were compared; the entry ends when one of their texts changes.
        before_ns: the time of the choice that the time model expects to be the fastest.
        after_ns: the time of this choice.
    """

    problem: str
    choice: Choice
    kernels: tuple[str, ...]
    before_ns: float
    after_ns: float


_given: contextvars.ContextVar[Mapping[str, Choice] | None] = contextvars.ContextVar(
    "vklab_choices", default=None
)


def instead(choices: Mapping[str, Choice]) -> contextlib.AbstractContextManager[None]:
    """Let sessions that are loaded in a `with` block use other choices than the kept ones."""
    return settings.within(_given, choices)


def kept(info: DeviceInfo) -> Mapping[str, Choice]:
    """Return the measured choices for a device by class; empty if it was never tuned."""
    given = _given.get()
    if given is not None:
        return given
    return {entry.problem: entry.choice for entry in entries(info)}


def entries(info: DeviceInfo) -> list[MeasuredChoice]:
    """Return the entries of a device that still hold, in order of their classes."""
    where = folder(info)
    if where is None or not where.is_dir():
        return []
    digest = functools.cache(_digest)
    found = []
    for path in where.glob("*.json"):
        entry, reason = None, "it is damaged"
        with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
            entry, reason = _parsed(json.loads(store.read(path) or b""), info, digest)
        if entry:
            found.append(entry)
        elif int(settings.get("DEBUG")) >= 1:
            print(f"ignored a measurement of kernels, {path}: {reason}", file=sys.stderr)
    return sorted(found, key=lambda entry: entry.problem)


def keep(info: DeviceInfo, entry: MeasuredChoice) -> bool:
    """Write an entry over the earlier one of its class; return whether it was written."""
    about = {"device": info.name, "driver": info.driver, "digest": _digest(entry.kernels)}
    return store.write(_path(info, entry.problem), json.dumps(asdict(entry) | about).encode())


def clear(info: DeviceInfo, problems: Sequence[str] | None = None) -> int:
    """Delete the entries of a device, or of some classes only; return how many there were."""
    where = folder(info)
    if where is None:
        return 0
    paths = where.glob("*.json") if problems is None else (_path(info, each) for each in problems)
    return sum(_deleted(path) for path in paths if path)


def folder(info: DeviceInfo) -> Path | None:
    """Return the folder of a device's entries; None if caches are switched off."""
    root = store.folder("tuned")
    cache: Any = info.limits.get("pipelineCacheUUID", ())
    name = f"{bytes(cache).hex() or info.uuid}-{info.vendor_id:x}-{info.device_id:x}"
    return root / f"{name}-{info.driver_version:x}-{__version__}" if root else None


def _path(info: DeviceInfo, problem: str) -> Path | None:
    where = folder(info)
    return where / f"{hashlib.sha256(problem.encode()).hexdigest()[:32]}.json" if where else None


def _deleted(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # another process was faster, or the folder cannot be written
        return False
    return True


def _parsed(
    data: dict[str, Any], info: DeviceInfo, digest: Any
) -> tuple[MeasuredChoice | None, str]:
    """Return an entry, or None and the reason; raise an error of the data's types if damaged."""
    rule, tile, parts = data["choice"]
    times = data["before_ns"], data["after_ns"]
    kernels = tuple(data["kernels"])
    numbers = [parts, *tile, *times]
    texts = [rule, data["problem"], *kernels]
    if not all(isinstance(text, str) for text in texts) or not kernels or not rule:
        return None, "it is damaged"
    if not all(type(n) in (int, float) and math.isfinite(n) and n >= 0 for n in numbers):
        return None, "it is damaged"
    if any(type(n) is not int for n in (parts, *tile)) or not 1 <= parts <= MOST_PARTS:
        return None, "it is damaged"
    if (data["device"], data["driver"]) != (info.name, info.driver):
        return None, f"it is of {data['device']}, {data['driver']}"
    if data["digest"] != digest(kernels):
        return None, "its kernels have changed since"
    return MeasuredChoice(data["problem"], (rule, tuple(tile), parts), kernels, *times), ""


def _digest(kernels: tuple[str, ...]) -> str:
    """Return a digest of the texts of kernels; empty if one of them is not there."""
    try:
        texts = [compiler.text_key(kernel) for kernel in kernels]
    except VklabError:
        return ""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
