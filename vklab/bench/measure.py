"""Measurement of a model by a runner: load, first run, steady runs, error against the reference.

Every row of one report comes from one process on one machine, so that rows can be compared.
Visited by lab 18.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
import onnx

from vklab.bench import models
from vklab.runtime import host, loading
from vklab.runtime.observe import compare

__all__ = ["FIVE", "RUNNERS", "Row", "measure", "measure_all", "named",
           "percentiles_us"]  # fmt: skip

# The default models; the others of `models.MODELS` take long to build.
FIVE = ("mnist12", "mlp", "conv_few", "mini_classifier", "chain_add_100")
LEAST_RUNS, PATIENCE_S = 10, 2.0
Arrays = dict[str, np.ndarray]
Target = tuple[int | str | None, str | None]  # device and dtype


@dataclass(frozen=True)
class Row:
    """One model on one runner. Times are of whole runs, host arrays in and out.

    `device_us` is the device's own time and `overhead_us` the rest of a run's time; both are None
    for a runner that does not report them. `max_abs_error` is against the reference.
    """

    model: str
    runner: str
    variant: str
    median_us: float
    p05_us: float
    p95_us: float
    device_us: float | None
    overhead_us: float | None
    max_abs_error: float
    load_ms: float
    first_ms: float

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)


def percentiles_us(run: Callable[[], object]) -> tuple[float, float, float]:
    """Run for PATIENCE_S and return the 5th, 50th and 95th percentile in microseconds."""
    samples: list[float] = []
    begun = time.perf_counter()
    while len(samples) < LEAST_RUNS or (
        time.perf_counter() - begun < PATIENCE_S and len(samples) < 1000
    ):
        start = time.perf_counter_ns()
        run()
        samples.append((time.perf_counter_ns() - start) / 1e3)
    cuts = quantiles(samples, n=20)
    return cuts[0], cuts[9], cuts[18]


def _vklab(name: str, model: onnx.ModelProto, inputs: Arrays, target: Target) -> Row:
    device, dtype = target
    begun = time.perf_counter()
    with loading.load(model, device, dtype=dtype) as loaded:
        load_ms = (time.perf_counter() - begun) * 1e3
        begun = time.perf_counter()
        outputs = loaded.run(inputs)
        first_ms = (time.perf_counter() - begun) * 1e3
        p05, median, p95 = percentiles_us(lambda: loaded.run(inputs))
        timing = loaded.time(inputs)
        error = compare.compare(outputs, loaded.reference(inputs)).max_abs_error
        device_us = float(np.median(timing.device_ns)) / 1e3
        variant = " ".join(filter(None, (loaded.device.name, dtype)))
        return Row(name, "vklab", variant, median, p05, p95, device_us,
                   timing.overhead_ns / 1e3, error, load_ms, first_ms)  # fmt: skip


def _onnxruntime(name: str, model: onnx.ModelProto, inputs: Arrays, target: Target) -> Row:
    del target
    begun = time.perf_counter()
    reference = host.Reference(model)
    load_ms = (time.perf_counter() - begun) * 1e3
    begun = time.perf_counter()
    reference.run(inputs)
    first_ms = (time.perf_counter() - begun) * 1e3
    p05, median, p95 = percentiles_us(lambda: reference.run(inputs))
    return Row(name, "onnxruntime", "CPU", median, p05, p95, None, None, 0.0, load_ms, first_ms)


RUNNERS: dict[str, Callable[[str, onnx.ModelProto, Arrays, Target], Row]] = {
    "vklab": _vklab,
    "onnxruntime": _onnxruntime,
}


def measure(
    name: str, runner: str, device: int | str | None = None, dtype: str | None = None
) -> Row:
    """Measure one model by one runner. Raises ModelError for an unknown name.

    Args:
        name: a key of `models.MODELS`, or the path of a .onnx file.
        runner: a key of RUNNERS.
        device: index or part of a name, for vklab; None for the fastest device.
        dtype: "float16" for half precision, for vklab; None for the model's own.
    """
    name, model = named(name)
    return RUNNERS[runner](name, model, models.sample_inputs(model), (device, dtype))


def named(name: str) -> tuple[str, onnx.ModelProto]:
    """Return the name and the model of a key of `models.MODELS`, or of a .onnx file."""
    if name.endswith(".onnx"):
        return Path(name).stem, onnx.load(name)
    return name, models.build(name)


def measure_all(
    names: Iterable[str],
    runners: Iterable[str],
    device: int | str | None = None,
    dtype: str | None = None,
) -> Iterator[Row]:
    """Measure every model by every runner; yield the rows as they are ready.

    Args:
        names: keys of `models.MODELS`, or paths of .onnx files.
        runners: keys of RUNNERS.
        device: as in `measure`.
        dtype: as in `measure`.
    """
    for name in names:
        for runner in runners:
            yield measure(name, runner, device, dtype)
