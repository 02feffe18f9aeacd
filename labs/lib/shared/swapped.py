"""Run and plan models in a process of its own while a student's function replaces the runtime's.

The child has a time limit. The caller passes a function that verifies what the student's function
returns, and raises before a driver sees it. Visited by labs 09 to 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import onnx

import vklab
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.memory import INPUTS, OUTPUTS
from vklab.plan.options import Options
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo
from vklab_course.children.run_limited import run_limited
from vklab_course.data import data
from vklab_course.swap import swap
from vklab_labs.shared import recorded_graphs

__all__ = ["Load", "MODELS", "PlanOptions", "Swapped", "facts_of", "plan_recorded", "run_model",
           "run_swapped", "same_outputs"]  # fmt: skip

SECONDS = 120.0
RTOL = 1e-4
WIDTH = 102  # of a line that a notebook shows without breaking a word
MODELS = ("mini_classifier.onnx", "digits_cnn.onnx")
Load = Callable[[Any], vklab.Session]
Outputs = Mapping[str, np.ndarray]
PlanOptions = Options | Callable[[Graph], Options] | None


@dataclass(frozen=True)
class Swapped:
    """One model with the runtime's own function, and with the student's.

    Attributes:
        model: file or recorded graph.
        same: whether the outputs agree to RTOL; None for a graph that was planned only.
        own: counts of dispatches, barriers and chunks, and the bytes of activations; for several
            devices also the transfers, the bytes of inputs and outputs that the host sees, and,
            after a run, the paths of the transfers.
        mine: the same, with the student's function.
    """

    model: str
    same: bool | None
    own: Mapping[str, Any]
    mine: Mapping[str, Any]

    def __str__(self) -> str:
        result = "planned, not run" if self.same is None else f"same outputs: {self.same}"
        pairs = [
            (name, self.own.get(name, "none"), self.mine.get(name, "none"))
            for name in {**self.own, **self.mine}
        ]
        changes = ", ".join(
            f"{name} {own}" if own == mine else f"{name} {own} -> {mine}"
            for name, own, mine in pairs
        )
        whole = changes.replace(" ", "\0").replace(",\0", ", ")  # a line ends between two facts
        text = fill(f"{self.model}: {result}; {whole}", WIDTH, subsequent_indent="    ")
        return text.replace("\0", " ")


def run_swapped(
    path: str,
    replacement: Any,
    *,
    models: Sequence[str | onnx.ModelProto] = MODELS,
    planned: Sequence[str] = ("resnet50",),
    load: Load = vklab.load,
    infos: Sequence[DeviceInfo] = (),
    options: PlanOptions = None,
    variables: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> tuple[tuple[Swapped, ...], str]:
    """Return a row for each model, and "" or the reason why there are none.

    Args:
        path: the seam, such as "vklab.plan.memory.assign_offsets".
        replacement: what replaces the seam: a function with its signature, or a tuple of passes.
            It calls the student's function, verifies the result, and raises an AssertionError with
            a sentence if the result is wrong.
        models: files of `data/`, or models, to run on random inputs.
        planned: recorded graphs to plan without running them.
        load: how a model is loaded, on several devices for example.
        infos: devices to plan for; default: the first one of this machine.
        options: options of these plans, or a function of the graph that returns them.
        variables: environment variables of the process, such as those that name drivers.
        seconds: time limit of the process.
    """
    files = [
        (each, str(data(each))) if isinstance(each, str) else (each.graph.name, each)
        for each in models
    ]
    for name in planned:
        data(f"graphs/{name}.onnx")  # raises here, not in the child
    ran = run_limited(
        _compared,
        path,
        replacement,
        files,
        load,
        tuple(planned),
        tuple(infos),
        options,
        seconds=seconds,
        variables=variables,
    )
    return (ran.value, "") if ran.status == "returned" else ((), ran.message)


def _compared(
    path: str, replacement: Any, files: Sequence[tuple[str, Any]], load: Load,
    planned: Sequence[str], infos: Sequence[DeviceInfo], options: PlanOptions,
) -> tuple[Swapped, ...]:  # fmt: skip
    rows = []
    for name, file in files:
        own, expected = run_model(file, load)
        with swap(path, replacement):
            mine, got = run_model(file, load)
        rows.append(Swapped(name, same_outputs(got, expected), facts_of(own), facts_of(mine)))
    for name in planned:
        own = plan_recorded(name, infos, options)
        with swap(path, replacement):
            mine = plan_recorded(name, infos, options)
        rows.append(Swapped(name, None, facts_of(own), facts_of(mine)))
    return tuple(rows)


def same_outputs(got: Outputs, expected: Outputs) -> bool:
    """Tell whether two runs have the same outputs, to RTOL."""
    return got.keys() == expected.keys() and all(
        np.allclose(got[key], expected[key], rtol=RTOL, atol=RTOL) for key in expected
    )


def plan_recorded(name: str, infos: Sequence[DeviceInfo] = (), options: PlanOptions = None) -> Plan:
    """Return the plan of a recorded graph, for the first device if none is named.

    Args:
        name: the graph.
        infos: the devices.
        options: options of the plan, or a function of the graph that returns them.
    """
    graph = recorded_graphs.runtime_graph(name)
    inputs = {info.name: info for info in graph.inputs}
    chosen = options(graph) if callable(options) else options
    return plans.make_plan(graph, inputs, infos or vklab.devices()[:1], chosen)


def run_model(file: Any, load: Load = vklab.load) -> tuple[Plan, dict[str, np.ndarray]]:
    """Run a model once on random inputs; return its plan and its outputs.

    Args:
        file: the model's path, bytes or ModelProto; an open dimension is 2.
        load: how it is loaded.
    """
    with load(file) as session:
        random = np.random.default_rng(0)
        inputs = {
            info.name: random.random(
                [dim if isinstance(dim, int) else 2 for dim in info.shape]
            ).astype(info.dtype)
            for info in session.inputs
        }
        outputs = {name: np.asarray(value) for name, value in session.run(inputs).items()}
        return session.plan, outputs


def facts_of(plan: Plan) -> Mapping[str, Any]:
    """Return the counts of a plan, as `Swapped` names them."""
    facts: dict[str, Any] = {
        "dispatches": len(plan.dispatches),
        "barriers": sum(len(chunk.barriers) for chunk in plan.chunks),
        "chunks": len(plan.chunks),
        "arena_bytes": sum(chunk.memory.arena_bytes for chunk in plan.chunks),
    }
    if len(plan.devices) > 1:
        facts["transfers"] = len(plan.transfers)
        facts["host_bytes"] = sum(
            chunk.memory.arenas.get(arena, 0)
            for chunk in plan.chunks
            for arena in (INPUTS, OUTPUTS)
        )
        paths = {plan.paths[move].name for move in plan.transfers if move in plan.paths}
        if paths:
            facts["paths"] = ", ".join(sorted(paths))
    return facts
