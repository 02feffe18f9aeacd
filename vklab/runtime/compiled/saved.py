"""What a compiled model holds, and whether its plans are right where it is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import vklab
from vklab import settings
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk
from vklab.runtime.compiled import codec, container
from vklab.shader import compiler
from vklab.types import DeviceInfo

__all__ = ["SavedKernel", "Saved", "SavedPart", "SavedStage", "difference", "read", "write"]

# Facts in which two devices may differ that plans are the same for.
_NOT_FACTS = frozenset({"index", "uuid", "heaps", "queue_families", "refusal"})
_MOST_SHOWN = 3


@dataclass(frozen=True)
class SavedPart:
    """An entry of a plan cache: its key and chunk; `rest` and `bodies` number stages, -1 none."""

    key: tuple[Any, ...]
    chunk: Chunk
    rest: int
    bodies: Mapping[str, int]


@dataclass(frozen=True)
class SavedStage:
    """A plan cache: what is left of the graph (None at the root, which is the model), its parts."""

    graph: Graph | None
    needs: tuple[str, ...]
    parts: tuple[SavedPart, ...]


@dataclass(frozen=True)
class SavedKernel:
    """A compiled kernel under its variant; `text_key` tells whether its text is still the same."""

    variant: tuple[str, tuple[tuple[str, str], ...], str]
    text_key: str
    shader: compiler.Shader


Kernel = SavedKernel  # the type of `Saved.kernels` as every file spells it


@dataclass(frozen=True)
class Saved:
    """A compiled model.

    Attributes:
        graph: the model as it was imported, so that it can be planned anew.
        device: what its plans are for, with `dtype`, `upper_bounds` and the switches in `switches`.
        stages: the first is the root; none if the plans are of another layout than this vklab's.
        outdated: why there are none.
    """

    graph: Graph
    dtype: str
    upper_bounds: Mapping[str, int]
    device: DeviceInfo
    switches: Mapping[str, Any]
    stages: tuple[SavedStage, ...]
    kernels: tuple[Kernel, ...]
    outdated: str = ""

    @property
    def shaders(self) -> dict[compiler.Variant, compiler.Shader]:
        """Return every kernel of the file by its variant."""
        return {kernel.variant: kernel.shader for kernel in self.kernels}

    def current_shaders(self) -> dict[compiler.Variant, compiler.Shader]:
        """Return the kernels whose text is the same here as where the file was made."""
        return {k.variant: k.shader for k in self.kernels
                if compiler.text_key(*k.variant) == k.text_key}  # fmt: skip

    def mismatch(self, dtype: str, upper_bounds: Mapping[str, int]) -> str:
        """Return why no plan of the file can be used, whatever the device; empty if one may be."""
        if self.outdated:
            return self.outdated
        if dtype != self.dtype:
            return f"compiled for dtype={self.dtype or None}, loaded with dtype={dtype or None}"
        if dict(upper_bounds) != dict(self.upper_bounds):
            return f"compiled for upper_bounds={dict(self.upper_bounds)}, not {dict(upper_bounds)}"
        before = {name: setting.default for name, setting in settings.SETTINGS.items()}
        before |= self.switches
        now = settings.plan_switches()
        changed = [f"{name} was {before[name]!r}, is {value!r}"
                   for name, value in now.items() if value != before[name]]  # fmt: skip
        return "compiled with other switches: " + "; ".join(changed) if changed else ""


def difference(compiled: DeviceInfo, here: DeviceInfo) -> str:
    """Return in which facts that plans depend on two devices differ; empty if in none."""
    found: list[str] = []
    for name in (field.name for field in fields(DeviceInfo) if field.name not in _NOT_FACTS):
        before, now = getattr(compiled, name), getattr(here, name)
        if isinstance(before, Mapping):
            found += [f"{key} {before.get(key)} -> {now.get(key)}" for key in {**before, **now}
                      if before.get(key) != now.get(key)]  # fmt: skip
        elif isinstance(before, frozenset):
            found += [f"{name} without {x}" for x in sorted(before - now)]
            found += [f"{name} with {x}" for x in sorted(now - before)]
        elif before != now:
            found.append(f"{name} {before} -> {now}")
    if not found:
        return ""
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return f"compiled for {compiled.name}, this is {here.name}: " + "; ".join(
        found[:_MOST_SHOWN]) + more  # fmt: skip


def write(path: Path, saved: Saved) -> int:
    """Write a compiled model; return the bytes of the file."""
    blobs = codec.Blobs()
    plans = codec.Encoder(blobs).document((saved.stages, saved.kernels))
    rest = replace(saved, stages=(), kernels=())
    header = {"vklab": vklab.__version__, "model": codec.Encoder(blobs).document(rest),
              "plans": plans}  # fmt: skip
    return container.write(path, header, blobs.views)


def read(model: str | os.PathLike[str] | bytes) -> Saved:
    """Read a compiled model; its arrays lie in the mapped file.

    Raises ModelError for what is damaged, newer or contradicts itself, FileNotFoundError.
    """
    header, views = container.read(model)
    label = "the given bytes" if isinstance(model, bytes) else str(model)
    blobs = codec.Blobs(views)
    try:
        saved: Saved = codec.decode(header.get("model"), blobs, Saved, label)
    except codec.OutdatedError as error:
        raise ModelError(f"{label} was compiled by another vklab ({header.get('vklab')}): {error}; "
                         "compile the model again") from error  # fmt: skip
    kind = tuple[tuple[SavedStage, ...], tuple[SavedKernel, ...]]
    try:
        stages, kernels = codec.decode(header.get("plans"), blobs, kind, label)
    except codec.OutdatedError as error:
        return replace(
            saved, outdated=f"compiled by another vklab ({header.get('vklab')}): {error}"
        )
    numbers = [n for s in stages for part in s.parts for n in (part.rest, *part.bodies.values())]
    if any(not -1 <= number < len(stages) for number in numbers):
        raise ModelError(f"{label} contradicts itself: its path leads to stages that are not there")
    return replace(saved, stages=stages, kernels=kernels)
