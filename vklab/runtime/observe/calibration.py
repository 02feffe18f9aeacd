"""Measurement of a device's speeds with the runtime's own kernels, kept in the cache folder.

Placement uses them; without a measurement, `plan/place/costs.py` estimates. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import SetupError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.plan import plan as plans
from vklab.plan.barriers import Copy
from vklab.plan.chunk import Chunk
from vklab.plan.options import Facts
from vklab.plan.place.costs import DeviceCosts
from vklab.runtime import kernels, open_devices
from vklab.runtime.device_state import DeviceState
from vklab.runtime.many import speeds
from vklab.runtime.observe import timestamps
from vklab.runtime.observe.timestamps import Sample
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.types import TensorInfo

REPEATS = 5  # of which the median counts: a typical run, other work on the machine included
LAUNCHES = 64
# Larger than the caches of a GPU; on a CPU device as many bytes would take too long.
STREAM_BYTES, CPU_STREAM_BYTES = 64 << 20, 8 << 20
LEAST_SIZE, MOST_SIZE, LONG_NS = 32, 2048, 1e7  # product sizes, doubled until one takes LONG_NS

_Trial = Callable[[int], tuple[Graph, int]]


def measure(device: int | str | None = None, *, keep: bool = True) -> DeviceCosts:
    """Measure the speeds of a device, and keep them for placement.

    Takes a second or two. Other work on the device at that time falsifies the result.

    Args:
        device: index or part of a name, as in `load`.
        keep: whether placement shall use the speeds.

    Raises SetupError for a device without timestamps.
    """
    opened = open_devices.open_device(device)
    info = opened.info
    if not opened.device.compute_queue.family.timestamp_valid_bits:
        raise SetupError(
            f"{info.name} has no timestamps on its compute queue: its speed cannot "
            "be measured, only estimated"
        )
    # Each node must stay a step of its own: fusion would merge the chain.
    with settings.settings(DISABLE_FUSION=True, DISABLE_IN_PLACE=True):
        measured = _measure(opened)
    if keep:
        speeds.keep(info, measured)
    return measured


def _measure(opened: OpenDevice) -> DeviceCosts:
    chain, _ = _samples(opened, _chain("Neg", LAUNCHES, (64,)), whole=True)
    launch_ns = median(sample.step_ns[0] for sample in chain) / LAUNCHES
    single, _ = _samples(opened, _chain("Neg", 1, (64,)), whole=True)
    size = CPU_STREAM_BYTES if opened.info.is_cpu else STREAM_BYTES
    kernel_ns, link_ns = _streamed(opened, _chain("Neg", 3, (size // 4,)))
    return DeviceCosts(
        bytes_per_ns=2 * size / max(kernel_ns - launch_ns, 1.0),
        flops_per_ns=_flops_per_ns(opened, launch_ns, _product, _convolution),
        thin_flops_per_ns=_flops_per_ns(opened, launch_ns, _row, _depthwise),
        launch_ns=launch_ns,
        link_bytes_per_ns=2 * size / link_ns,
        submit_ns=median(s.ended_ns - s.begun_ns - s.step_ns[0] for s in single),
        is_measured=True,
    )


def _streamed(opened: OpenDevice, graph: Graph) -> tuple[float, float]:
    """Return the nanoseconds of one kernel of a chain, and of all copies from and to the host."""
    samples, copies = _samples(opened, graph)
    columns = zip(*(sample.step_ns for sample in samples), strict=True)
    steps = list(zip(map(median, columns), copies, strict=True))
    mapped = median((s.submitting_ns - s.begun_ns) + (s.ended_ns - s.done_ns) for s in samples)
    kernel_ns = min(ns for ns, is_copy in steps if not is_copy)
    return kernel_ns, mapped + sum(ns for ns, is_copy in steps if is_copy)


def _flops_per_ns(opened: OpenDevice, launch_ns: float, *trials: _Trial) -> float:
    """Return the mean rate of some products, each doubled in size until it takes LONG_NS."""
    rates = []
    for trial in trials:
        size, time_ns = LEAST_SIZE, 0.0
        while time_ns < LONG_NS and size <= MOST_SIZE:
            graph, flops = trial(size)
            samples, _ = _samples(opened, graph, whole=True)
            time_ns = median(sample.step_ns[0] for sample in samples)
            size *= 2
        rates.append(flops / max(time_ns - launch_ns, 1.0))
    return geometric_mean(rates)


def _product(size: int) -> tuple[Graph, int]:
    return _chain("MatMul", 1, (size, size), (size, size)), 2 * size**3


def _row(size: int) -> tuple[Graph, int]:
    return _chain("MatMul", 1, (1, size), (size, size)), 2 * size**2


def _convolution(size: int) -> tuple[Graph, int]:
    side = size // 4
    graph = _chain("Conv", 1, (1, size, side, side), (size, size, 3, 3), pads=(1,) * 4)
    return graph, 2 * 9 * (size * side) ** 2


def _depthwise(size: int) -> tuple[Graph, int]:
    graph = _chain("Conv", 1, (1, 16, size, size), (16, 1, 3, 3), pads=(1,) * 4, group=16)
    return graph, 2 * 9 * 16 * size**2


def _chain(
    kind: str, count: int, shape: Sequence[int], weight: Sequence[int] = (), **attributes: Any
) -> Graph:
    """Build a graph with a chain of equal nodes; `weight` is the shape of their second operand."""
    ones = np.ones(weight, np.float32)
    weights = {"w": TensorInfo("w", "float32", ones.shape, ones)} if weight else {}
    nodes = tuple(
        Node(f"n{k}", kind, (f"n{k - 1}" if k else "x", *weights), (f"n{k}",), attributes)
        for k in range(count)
    )
    x = TensorInfo("x", "float32", tuple(shape))
    return shapes.infer(Graph(kind, 17, nodes, (x,), (f"n{count - 1}",), weights))


def _samples(
    opened: OpenDevice, graph: Graph, whole: bool = False
) -> tuple[list[Sample], list[bool]]:
    """Run a graph REPEATS times; return the samples, and for each step whether it is a copy."""
    facts = Facts(kernel_refusal=kernels.unavailable)
    chunk = plans.lower_chunk(Chunk(0, graph), opened.info, facts=facts)
    copies = [isinstance(step, Copy) for step in chunk.steps]
    with contextlib.closing(Program(DeviceState(opened), chunk)) as program:
        values = {i.name: np.ones(i.dims, np.float32) for i in graph.inputs}
        return timestamps.time_steps(program, values, REPEATS, whole), copies
