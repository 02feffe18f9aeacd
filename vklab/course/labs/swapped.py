"""Run and plan models in a process of its own while a student's function replaces the runtime's.

The child has a time limit. The caller passes a function that verifies what the student's function
returns, and raises before a driver sees it. Visited by labs 09 to 13.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import vklab
from vklab.course.children.run_limited import run_limited
from vklab.course.data import data
from vklab.course.labs import recorded_graphs
from vklab.course.swap import swap
from vklab.plan import plan as plans
from vklab.plan.memory import INPUTS, OUTPUTS
from vklab.plan.options import Options, PlacementOptions
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo

__all__ = ["Spread", "Swapped", "load_spread", "run_swapped"]

SECONDS = 120.0
RTOL = 1e-4
MODELS = ("mini_classifier.onnx", "digits_cnn.onnx")
FACTS = ("dispatches", "barriers", "chunks", "arena_bytes")


@dataclass(frozen=True)
class Spread:
    """Models spread over several devices: in pieces of equal length, on each device in turn.

    Attributes:
        pieces: the number of pieces.
        infos: the described devices for graphs that are planned only.
        environment: variables of the process, such as VK_DRIVER_FILES; models run on all devices
            that it sees.
    """

    pieces: int
    infos: Sequence[DeviceInfo] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def pins(self, names: Sequence[str], devices: int) -> dict[str, int]:
        """Return the device of each node, by a pattern that matches its name only."""
        return {glob.escape(name): n * self.pieces // len(names) % devices
                for n, name in enumerate(names)}


@dataclass(frozen=True)
class Swapped:
    """One model with the runtime's own function, and with the student's.

    Attributes:
        model: file or recorded graph.
        same: whether the outputs agree to RTOL; None for a graph that was planned only.
        own: counts of dispatches, barriers and chunks, and the bytes of activations; for several
            devices also the transfers and the bytes of inputs and outputs that the host sees, and
            the path of each transfer after a run.
        mine: the same, with the student's function.
    """

    model: str
    same: bool | None
    own: Mapping[str, Any]
    mine: Mapping[str, Any]

    def __str__(self) -> str:
        result = "planned, not run" if self.same is None else f"same outputs: {self.same}"
        changes = ", ".join(f"{name} {self.own[name]}" if self.own[name] == self.mine[name] else
                            f"{name} {self.own[name]} -> {self.mine[name]}"
                            for name in self.own)  # fmt: skip
        return f"{self.model}: {result}; {changes}"


def run_swapped(
    path: str,
    replacement: Callable[..., Any],
    *,
    models: Sequence[str] = MODELS,
    planned: Sequence[str] = ("resnet50",),
    device: int | str | None = None,
    seconds: float = SECONDS,
    spread: Spread | None = None,
) -> tuple[tuple[Swapped, ...], str]:
    """Return a row for each model, and "" or the reason why there are none.

    Args:
        path: the seam, such as "vklab.plan.memory.assign_offsets".
        replacement: a function with the seam's signature. It calls the student's function, verifies
            the result, and raises an AssertionError with a sentence if the result is wrong.
        models: files of `data/` to run on random inputs.
        planned: recorded graphs to plan without running them.
        device: as in `vklab.load`.
        seconds: time limit of the process.
        spread: spreads models over several devices; `device` is not used then.
    """
    files = [(name, str(data(name))) for name in models]
    for name in planned:
        data(f"graphs/{name}.onnx")  # raises here, not in the child
    ran = run_limited(_compared, path, replacement, files, tuple(planned), device, spread,
                      seconds=seconds)  # fmt: skip
    return (ran.value, "") if ran.status == "returned" else ((), ran.message)


def _compared(
    path: str, replacement: Any, files: Sequence[tuple[str, str]], planned: Sequence[str],
    device: int | str | None, spread: Spread | None,
) -> tuple[Swapped, ...]:  # fmt: skip
    if spread:
        os.environ.update(spread.environment)
    rows = []
    for name, file in files:
        own, expected = _run(file, device, spread)
        with swap(path, replacement):
            mine, got = _run(file, device, spread)
        same = got.keys() == expected.keys() and all(
            np.allclose(got[key], expected[key], rtol=RTOL, atol=RTOL) for key in expected)
        rows.append(Swapped(name, same, own, mine))
    infos = spread.infos if spread else vklab.devices()[:1]
    for name in planned:
        own = _planned(name, infos, spread)
        with swap(path, replacement):
            rows.append(Swapped(name, None, own, _planned(name, infos, spread)))
    return tuple(rows)


def _planned(name: str, infos: Sequence[DeviceInfo], spread: Spread | None) -> Mapping[str, Any]:
    graph = recorded_graphs.runtime_graph(name)
    inputs = {info.name: info for info in graph.inputs}
    pins = spread.pins([node.name for node in graph.nodes], len(infos)) if spread else {}
    options = Options(placement=PlacementOptions(pins=pins))
    return _facts(plans.make_plan(graph, inputs, infos, options))


def load_spread(file: str, pieces: int) -> vklab.Session:
    """Load a model in pieces of equal length on all devices in turn, the default device first.

    Args:
        file: path of the model.
        pieces: the number of pieces.
    """
    with vklab.load(file) as session:
        names = [node.name for node in session.graph.nodes]
        first = session.device.index
    others = [info.index for info in vklab.devices() if not info.refusal and info.index != first]
    order = [first, *others]
    pins = Spread(pieces).pins(names, len(order))
    return vklab.load(file, devices=order, place={name: order[n] for name, n in pins.items()})


def _run(
    file: str, device: int | str | None, spread: Spread | None
) -> tuple[Mapping[str, Any], dict[str, np.ndarray]]:
    with load_spread(file, spread.pieces) if spread else vklab.load(file, device=device) as session:
        random = np.random.default_rng(0)
        inputs = {
            info.name: random.random([dim if isinstance(dim, int) else 2 for dim in info.shape]
                                     ).astype(info.dtype)
            for info in session.inputs
        }  # fmt: skip
        outputs = {name: np.asarray(value) for name, value in session.run(inputs).items()}
        return _facts(session.plan), outputs


def _facts(plan: Plan) -> Mapping[str, Any]:
    facts: dict[str, Any] = dict(zip(FACTS, (
        len(plan.dispatches),
        sum(len(chunk.barriers) for chunk in plan.chunks),
        len(plan.chunks),
        sum(chunk.memory.arena_bytes for chunk in plan.chunks),
    ), strict=True))  # fmt: skip
    if len(plan.devices) > 1:
        facts["transfers"] = len(plan.transfers)
        facts["host_bytes"] = sum(chunk.memory.arenas.get(arena, 0) for chunk in plan.chunks
                                  for arena in (INPUTS, OUTPUTS))  # fmt: skip
        paths = [plan.paths[move].name for move in plan.transfers if move in plan.paths]
        if paths:
            facts["paths"] = ", ".join(sorted(set(paths)))
    return facts
