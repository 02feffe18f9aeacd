"""Run and plan models in a process of its own while a student's function replaces the runtime's.

The child has a time limit. The caller passes a function that verifies what the student's function
returns, and raises before a driver sees it. Visited by labs 09 to 13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import vklab
from vklab.course.children.run_limited import run_limited
from vklab.course.data import data
from vklab.course.labs import recorded_graphs
from vklab.course.swap import swap
from vklab.plan import plan as plans
from vklab.plan.plan import Plan

__all__ = ["Swapped", "run_swapped"]

SECONDS = 120.0
RTOL = 1e-4
MODELS = ("mini_classifier.onnx", "digits_cnn.onnx")
FACTS = ("dispatches", "barriers", "chunks", "arena_bytes")


@dataclass(frozen=True)
class Swapped:
    """One model with the runtime's own function, and with the student's.

    Attributes:
        model: file or recorded graph.
        same: whether the outputs agree to RTOL; None for a graph that was planned only.
        own: counts of dispatches, barriers and chunks, and the bytes of activations.
        mine: the same, with the student's function.
    """

    model: str
    same: bool | None
    own: Mapping[str, int]
    mine: Mapping[str, int]

    def __str__(self) -> str:
        result = "planned, not run" if self.same is None else f"same outputs: {self.same}"
        changes = ", ".join(f"{name} {self.own[name]}" if self.own[name] == self.mine[name] else
                            f"{name} {self.own[name]} -> {self.mine[name]}"
                            for name in FACTS)  # fmt: skip
        return f"{self.model}: {result}; {changes}"


def run_swapped(
    path: str,
    replacement: Any,
    *,
    models: Sequence[str | onnx.ModelProto] = MODELS,
    planned: Sequence[str] = ("resnet50",),
    device: int | str | None = None,
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
        device: as in `vklab.load`.
        seconds: time limit of the process.
    """
    files = [(each, str(data(each))) if isinstance(each, str) else (each.graph.name, each)
             for each in models]  # fmt: skip
    for name in planned:
        data(f"graphs/{name}.onnx")  # raises here, not in the child
    ran = run_limited(_compared, path, replacement, files, tuple(planned), device, seconds=seconds)
    return (ran.value, "") if ran.status == "returned" else ((), ran.message)


def _compared(
    path: str, replacement: Any, files: Sequence[tuple[str, Any]], planned: Sequence[str],
    device: int | str | None,
) -> tuple[Swapped, ...]:  # fmt: skip
    rows = []
    for name, file in files:
        own, expected = _run(file, device)
        with swap(path, replacement):
            mine, got = _run(file, device)
        same = got.keys() == expected.keys() and all(
            np.allclose(got[key], expected[key], rtol=RTOL, atol=RTOL) for key in expected)
        rows.append(Swapped(name, same, own, mine))
    infos = vklab.devices()
    for name in planned:
        graph = recorded_graphs.runtime_graph(name)
        inputs = {info.name: info for info in graph.inputs}
        own = _facts(plans.make_plan(graph, inputs, infos[:1]))
        with swap(path, replacement):
            graph = recorded_graphs.runtime_graph(name)
            rows.append(Swapped(name, None, own, _facts(plans.make_plan(graph, inputs, infos[:1]))))
    return tuple(rows)


def _run(file: Any, device: int | str | None) -> tuple[Mapping[str, int], dict[str, np.ndarray]]:
    with vklab.load(file, device=device) as session:
        random = np.random.default_rng(0)
        inputs = {
            info.name: random.random([dim if isinstance(dim, int) else 2 for dim in info.shape]
                                     ).astype(info.dtype)
            for info in session.inputs
        }  # fmt: skip
        outputs = {name: np.asarray(value) for name, value in session.run(inputs).items()}
        return _facts(session.plan), outputs


def _facts(plan: Plan) -> Mapping[str, int]:
    return {
        "dispatches": len(plan.dispatches),
        "barriers": sum(len(chunk.barriers) for chunk in plan.chunks),
        "chunks": len(plan.chunks),
        "arena_bytes": sum(chunk.memory.arena_bytes for chunk in plan.chunks),
    }
