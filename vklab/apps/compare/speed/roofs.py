"""Roofs of a device, measured by vklab: bytes and operations a second, time of a submission.

The same child keeps the device at work between turns, so that its clocks stay up.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vklab import settings
from vklab.apps.compare.models import graphs, products
from vklab.runtime import loading, open_devices

GPU_SIZE, CPU_SIZE = 4096, 256  # of a square product
GPU_SIDE, CPU_SIDE = 8192, 2048  # of a weight of 256 and of 16 MiB: more than a cache holds
GPU_REPEATS, CPU_REPEATS = 3, 3
RUNS, CHAIN = 200, 100  # runs of the smallest model; additions of the chain that is not fused
TIMES, WARM_S = 6, 0.15  # a rate is measured so often, each time after so many seconds of work


@dataclass(frozen=True)
class Roofs:
    """Best rates of a device, as far as vklab's own kernels show them.

    Attributes:
        bytes_per_s: bytes of a weight that a product of one row reads in a second.
        flops_per_s: operations of a product in a second, by dtype.
        submission_us: a submission and a wait for it, without the work of the device.
        dispatch_us: a dispatch of no work, and the barrier after it; 0 if it is not known.
    """

    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    submission_us: float
    dispatch_us: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Return the roofs ready for JSON."""
        return asdict(self)


def floor_us(roofs: Roofs, work: tuple[int, int], dtype: str, on_device: bool) -> float:
    """Return the least time of a run: bytes or operations, whichever takes longer.

    Args:
        roofs: the roofs of the device.
        work: operations, and bytes in float32.
        dtype: dtype of the run; half of the bytes move in float16.
        on_device: whether the time is that of the device, without a submission.
    """
    flops, size = work
    half = dtype == "float16"
    rate = roofs.flops_per_s.get("float16" if half else "float32", 0.0)
    moving = size / (2 if half else 1) / roofs.bytes_per_s if roofs.bytes_per_s else 0.0
    seconds = max(moving, flops / rate if rate else 0.0)
    return seconds * 1e6 + (0.0 if on_device else roofs.submission_us)


def measure(state: dict[str, Any], device: int | str | None) -> Roofs:
    """Measure the roofs, and keep the product loaded for `warm`.

    Args:
        state: the child's dict.
        device: index or part of a name.
    """
    info = open_devices.select(device)
    # The clocks fall within milliseconds of copies and of Python: each profile follows warm work.
    heat = None if info.is_cpu else functools.partial(warm, state, device, WARM_S)
    size, repeats = (CPU_SIZE, CPU_REPEATS) if info.is_cpu else (GPU_SIZE, GPU_REPEATS)
    model = products.product(size, size, size)
    rates = {}
    for dtype in ("float32", "float16"):
        half = dtype if dtype == "float16" else None
        with loading.load(model, device, dtype=half) as session:
            values = graphs.sample_inputs(model)
            rates[dtype] = 2 * size**3 / _kernel_s(session, values, repeats, heat)
    moved = bytes_per_s(device, state)
    return Roofs(moved, rates, _submission_us(device), _dispatch_us(device, heat))


def bytes_per_s(device: int | str | None, state: dict[str, Any] | None = None) -> float:
    """Return the bytes of a weight that a product of one row reads in a second.

    Args:
        device: index or part of a name.
        state: dict that keeps the model of `warm`; None for one that is freed.
    """
    info = open_devices.select(device)
    side, repeats = (CPU_SIDE, CPU_REPEATS) if info.is_cpu else (GPU_SIDE, GPU_REPEATS)
    kept: dict[str, Any] = {} if state is None else state
    heat = None if info.is_cpu else functools.partial(warm, kept, device, WARM_S)
    # Such a product reads its weight once, and little else.
    model = products.product(1, side, side)
    with loading.load(model, device) as session:
        moved = 4 * side**2 / _kernel_s(session, graphs.sample_inputs(model), repeats, heat)
    if state is None and heat:
        kept["warm"][0].close()
    return moved


def _kernel_s(
    session: Any, values: dict[str, np.ndarray], repeats: int, heat: Callable[[], object] | None
) -> float:
    """Return the least seconds that a model's kernels took in some profiles.

    Args:
        session: the session.
        values: arrays by input name.
        repeats: number of runs of each profile.
        heat: occupies the device before each profile; None for nothing.
    """
    found = []
    for _ in range(TIMES if heat else 1):
        if heat:
            heat()
        rows = session.profile(values, repeats=repeats).rows
        found.append(sum(row.time_ns for row in rows if row.kernel != "copy") / 1e9)
    return min(found)


def _submission_us(device: int | str | None) -> float:
    model = graphs.chain_add(1)
    values = graphs.sample_inputs(model)
    with loading.load(model, device) as session:
        timing = session.time(values, repeats=RUNS)
    rest = np.subtract(timing.host_ns, timing.device_ns)
    return max(float(np.percentile(rest, 5)), 0.0) / 1e3  # what other processes add is left out


def _dispatch_us(device: int | str | None, heat: Callable[[], object] | None) -> float:
    """Return the time of the device for one more addition of a chain that is not fused.

    Args:
        device: index or part of a name.
        heat: occupies the device before; None for nothing.
    """
    model = graphs.chain_add(CHAIN)
    values = graphs.sample_inputs(model)
    with settings.settings(DISABLE_FUSION=True), loading.load(model, device) as session:
        if heat:
            heat()
        timing = session.time(values, repeats=RUNS // 10)
    return float(np.median(timing.device_ns)) / 1e3 / CHAIN


@contextlib.contextmanager
def heater(device: int | str | None) -> Iterator[Callable[[float], object]]:
    """Yield a function that keeps a device at work for some seconds, in this process."""
    state: dict[str, Any] = {}
    try:
        yield functools.partial(warm, state, device)
    finally:
        for session, _ in state.values():
            session.close()


def warm(state: dict[str, Any], device: int | str | None, seconds: float) -> None:
    """Keep the device at work: repeated products of two matrices that stay on it.

    Args:
        state: the child's dict.
        device: index or part of a name.
        seconds: how long.
    """
    if "warm" not in state:
        # Eight equal layers on a small image: much arithmetic, nearly no copies.
        model = products.convolutions(256, 28, 28)
        session = loading.load(model, device)
        state["warm"] = session, graphs.sample_inputs(model)
    session, values = state["warm"]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        session.run(values)
