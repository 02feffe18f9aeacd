"""Content of a compiled model, and the check whether its plans are valid where it is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from vklab import settings
from vklab.base.version import __version__
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.plan.chunk import Chunk
from vklab.runtime.compiled import codec, container
from vklab.shader import compiler
from vklab.types import DeviceInfo

# Facts of a device that plans do not depend on.
_NOT_FACTS = frozenset({"index", "uuid", "heaps", "queue_families", "refusal"})
_MOST_SHOWN = 3


@dataclass(frozen=True)
class SavedPart:
    """A plan cache entry: key and chunk; `rest` and `bodies` are numbers of caches, -1 for none."""

    key: tuple[Any, ...]
    chunk: Chunk
    rest: int
    bodies: Mapping[str, int]


@dataclass(frozen=True)
class SavedStage:
    """A plan cache: the rest of the graph (None at the root for the whole model), and entries."""

    graph: Graph | None
    needs: tuple[str, ...]
    parts: tuple[SavedPart, ...]


@dataclass(frozen=True)
class SavedKernel:
    """A compiled kernel and its variant; `text_key` changes with the text of its shader."""

    variant: tuple[str, tuple[tuple[str, str], ...], str]
    text_key: str
    shader: compiler.Shader


Kernel = SavedKernel  # the annotation of `Saved.kernels` is part of the file format


@dataclass(frozen=True)
class Saved:
    """A compiled model.

    Attributes:
        graph: the imported model, so that it can be planned again.
        dtype: "float16" if it was planned for half precision.
        upper_bounds: the upper bounds of the plans.
        device: the device of the plans.
        switches: the settings of the plans.
        stages: the plan caches, the root first; none if this vklab cannot read the plans.
        kernels: the compiled kernels of all plans.
        outdated: why `stages` is empty.
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
        """Return the kernels whose shader text is unchanged since the file was compiled."""
        return {
            k.variant: k.shader for k in self.kernels if compiler.text_key(*k.variant) == k.text_key
        }

    def mismatch(self, dtype: str, upper_bounds: Mapping[str, int]) -> str:
        """Return why no plan of the file can be used on any device; empty if some may be."""
        if self.outdated:
            return self.outdated
        if dtype != self.dtype:
            return f"compiled for dtype={self.dtype or None}, loaded with dtype={dtype or None}"
        if dict(upper_bounds) != dict(self.upper_bounds):
            return f"compiled for upper_bounds={dict(self.upper_bounds)}, not {dict(upper_bounds)}"
        before = {name: setting.default for name, setting in settings.SETTINGS.items()}
        before |= self.switches
        now = settings.plan_switches()
        changed = [
            f"{name} was {before[name]!r}, is {value!r}"
            for name, value in now.items()
            if value != before[name]
        ]
        return "compiled with other switches: " + "; ".join(changed) if changed else ""


def difference(compiled: DeviceInfo, here: DeviceInfo) -> str:
    """Return the differences of two devices that plans depend on; empty if there are none."""
    changes: list[str] = []
    for name in (field.name for field in fields(DeviceInfo) if field.name not in _NOT_FACTS):
        before, now = getattr(compiled, name), getattr(here, name)
        if isinstance(before, Mapping):
            changes += [
                f"{key} {before.get(key)} -> {now.get(key)}"
                for key in {**before, **now}
                if before.get(key) != now.get(key)
            ]
        elif isinstance(before, frozenset):
            changes += [f"{name} without {x}" for x in sorted(before - now)]
            changes += [f"{name} with {x}" for x in sorted(now - before)]
        elif before != now:
            changes.append(f"{name} {before} -> {now}")
    if not changes:
        return ""
    more = f" and {len(changes) - _MOST_SHOWN} more" if len(changes) > _MOST_SHOWN else ""
    return (
        f"compiled for {compiled.name}, this is {here.name}: "
        + "; ".join(changes[:_MOST_SHOWN])
        + more
    )


def write(path: Path, saved: Saved) -> int:
    """Write a compiled model; return the size of the file in bytes."""
    blobs = codec.Blobs()
    plans = codec.Encoder(blobs).document((saved.stages, saved.kernels))
    rest = replace(saved, stages=(), kernels=())
    header = {"vklab": __version__, "model": codec.Encoder(blobs).document(rest), "plans": plans}
    return container.write(path, header, blobs.views)


def read(model: str | os.PathLike[str] | bytes) -> Saved:
    """Read a compiled model; its arrays share the memory of the mapped file.

    Raises ModelError for a damaged, newer or inconsistent file, FileNotFoundError.
    """
    header, views = container.read(model)
    label = "the given bytes" if isinstance(model, bytes) else str(model)
    blobs = codec.Blobs(views)
    try:
        saved: Saved = codec.decode(header.get("model"), blobs, Saved, label)
    except codec.OutdatedError as error:
        raise ModelError(
            f"{label} was compiled by another vklab ({header.get('vklab')}): {error}; "
            "compile the model again"
        ) from error
    kind = tuple[tuple[SavedStage, ...], tuple[SavedKernel, ...]]
    try:
        stages, kernels = codec.decode(header.get("plans"), blobs, kind, label)
    except codec.OutdatedError as error:
        return replace(
            saved, outdated=f"compiled by another vklab ({header.get('vklab')}): {error}"
        )
    numbers = [n for s in stages for part in s.parts for n in (part.rest, *part.bodies.values())]
    if any(not -1 <= number < len(stages) for number in numbers):
        raise ModelError(f"{label} contradicts itself: an entry refers to a missing plan cache")
    return replace(saved, stages=stages, kernels=kernels)
