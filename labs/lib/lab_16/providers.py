"""Execution providers as a table, machines to choose for, and recorded sessions.

The table follows `vklab parity --providers` of 2026-11-24. Visited by lab 16.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vklab_course.data import data

__all__ = ["MACHINES", "PROVIDERS", "recorded_sessions"]

BOTH, ALL = ("Linux", "Windows"), ("Linux", "Windows", "macOS")
PC = ("NVIDIA", "AMD", "Intel", "Qualcomm")


def _row(name: str, systems: tuple[str, ...], vendors: tuple[str, ...], *libraries: str) -> Any:
    return {
        "name": name + "ExecutionProvider",
        "systems": systems,
        "vendors": vendors,
        "libraries": libraries,
    }


# Most specific first. vendors: one of them is enough, and an empty tuple needs no GPU.
# libraries: all are needed.
PROVIDERS: tuple[dict[str, Any], ...] = (
    _row("Tensorrt", BOTH, ("NVIDIA",), "CUDA", "cuDNN", "TensorRT"),
    _row("CUDA", BOTH, ("NVIDIA",), "CUDA", "cuDNN"),
    _row("MIGraphX", ("Linux",), ("AMD",), "ROCm", "MIGraphX"),
    _row("QNN", BOTH, ("Qualcomm",), "QNN"),
    _row("CoreML", ("macOS",), ()),
    _row("Dml", ("Windows",), PC, "DirectML"),
    _row("WebGpu", ALL, (*PC, "Apple")),
    _row("OpenVINO", BOTH, (), "OpenVINO"),
    _row("CPU", ALL, ()),
)


def _listed(*short: str) -> list[str]:
    return [name + "ExecutionProvider" for name in short]


# In words: system, GPUs, providers as the build lists them, libraries.
MACHINES: Mapping[str, tuple[str, list[str], list[str], list[str]]] = {
    "server, cuDNN forgotten": (
        "Linux", ["NVIDIA"], _listed("Tensorrt", "CUDA", "CPU"), ["CUDA"]),
    "server, complete": (
        "Linux", ["NVIDIA"], _listed("Tensorrt", "CUDA", "CPU"), ["CUDA", "cuDNN"]),
    "cloud machine, no GPU": (
        "Linux", [], _listed("Tensorrt", "CUDA", "CPU"), ["CUDA", "cuDNN", "TensorRT"]),
    "laptop, two GPUs": (
        "Windows", ["Intel", "NVIDIA"], _listed("Dml", "CPU"), ["DirectML"]),
    "AMD workstation": (
        "Linux", ["AMD"], _listed("MIGraphX", "CPU"), ["ROCm", "MIGraphX"]),
    "Intel, OpenVINO": (
        "Linux", ["Intel"], _listed("OpenVINO", "CPU"), ["OpenVINO"]),
    "Mac": ("macOS", ["Apple"], _listed("CoreML", "Azure", "CPU"), []),
}  # fmt: skip


def recorded_sessions() -> list[dict[str, Any]]:
    """Return recorded sessions: what was asked, `get_providers()`, and nodes by provider."""
    record = json.loads(data("recorded/onnxruntime_sessions.json").read_text("utf-8"))
    sessions: list[dict[str, Any]] = record["sessions"]
    return sessions
