"""Every backend of every kind, present or absent, as Backend objects: rows of a report.

The list is made in a child, because it asks the Vulkan drivers; so is every answer of `available`,
because a library that does not load may end its process.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vklab.apps.compare import reference, vulkan
from vklab.apps.compare.backend import Availability, Backend
from vklab.apps.compare.children import tasks
from vklab.apps.compare.children.child import Child
from vklab.apps.compare.coreml import backend as apple
from vklab.apps.compare.coreml import on_vulkan
from vklab.apps.compare.onnxruntime import backend as onnxruntime
from vklab.apps.compare.torch import backend as torch
from vklab.base import worker


def every(peers: Path | None = None) -> list[Backend]:
    """Return all backends; asks the Vulkan drivers in this process.

    `peers` has a folder for each full build of ONNX Runtime, made by `pip install --target`.
    """
    devices = vulkan.every()
    return [*devices, *on_vulkan.every(devices), *_without_vulkan(peers)]


def _without_vulkan(peers: Path | None) -> list[Backend]:
    return [*apple.every(), *torch.every(), *onnxruntime.every(peers), reference.Reference()]


def _listed(state: dict[str, Any], peers: Path | None) -> list[Backend]:
    return every(peers)


def listed(peers: Path | None = None, seconds: float = 60.0) -> list[Backend]:
    """Return all backends, with the Vulkan devices that a child sees.

    Drivers that crash or hang are a row of their own.
    """
    try:
        return list(worker.once(_listed, peers, seconds=seconds))
    except worker.Failure as failure:
        reason = f"the Vulkan drivers cannot be listed: {failure.reason}"
        return [vulkan.Vulkan(-1, "Vulkan device", "", reason), *_without_vulkan(peers)]


def choose(backends: Sequence[Backend], patterns: Sequence[str]) -> list[Backend]:
    """Return the backends whose name matches a pattern, or has it as a part; all without one."""
    if not patterns:
        return list(backends)
    return [
        each
        for each in backends
        if any(fnmatch.fnmatch(each.name, pattern) or pattern in each.name for pattern in patterns)
    ]


def on_device(
    backends: Sequence[Backend], device_id: int, session: Mapping[str, str]
) -> list[Backend]:
    """Return backends, those of ONNX Runtime with a device and with options of their sessions.

    Args:
        backends: the backends.
        device_id: number of the device among those of the provider.
        session: options by name, as `onnxruntime.sessions.set_option` takes them.
    """
    return [
        dataclasses.replace(each, device_id=device_id, session=dict(session))
        if isinstance(each, onnxruntime.OnnxRuntime)
        else each
        for each in backends
    ]


def survey(backends: Sequence[Backend], seconds: float = 60.0) -> dict[str, Availability]:
    """Return whether each backend can run here, by name.

    All are asked in one child; where it ends, the others are asked again, one child each.
    """
    try:
        answers = worker.once(tasks.availability, list(backends), seconds=seconds)
        return {each.name: answer for each, answer in zip(backends, answers, strict=True)}
    except worker.Failure:
        found = {}
        for each in backends:
            with Child(each, seconds) as child:
                found[each.name] = child.available()
        return found
