"""Counts and times of recordings. Visited by lab 12."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

import onnx
from onnx import TensorProto, helper

import vklab
from vklab.settings import settings
from vklab_course.swap import swap

__all__ = ["adds", "recordings"]

RECORD = "vklab.runtime.program.Program.record"


def recordings(
    model: Any, feed: Mapping[str, Any], runs: int, **switches: Any
) -> tuple[int, float]:  # fmt: skip
    """Load and run a model; return how many steps were recorded, and the microseconds of one.

    Args:
        model: the model.
        feed: its inputs.
        runs: the number of runs.
        switches: switches of the runtime.
    """
    counts, times = list[int](), list[float]()

    def counted(program: Any, commands: Any, queries: Any = None) -> None:
        begun = perf_counter()
        real(program, commands, queries)
        times.append((perf_counter() - begun) * 1e6)
        counts.append(len(program.chunk.steps))

    with settings(**switches), swap(RECORD, counted) as real, vklab.load(model) as session:
        for _ in range(runs):
            session.run(feed)
    return sum(counts), median(times) / counts[-1]


def adds(count: int) -> onnx.ModelProto:
    """Return a model that adds a constant to x0 `count` times."""
    nodes = [helper.make_node("Add", [f"x{n}", "c"], [f"x{n + 1}"]) for n in range(count)]
    ends = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [1]) for n in (0, count)]
    weight = helper.make_tensor("c", TensorProto.FLOAT, [1], [0.001])
    graph = helper.make_graph(nodes, "adds", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
