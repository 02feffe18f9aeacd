"""Time of a model's products alone: what a prompt would take if there were nothing else in it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from vklab.apps.compare.speed import roofs
from vklab.apps.llm import products
from vklab.apps.llm.gguf import GgufFile
from vklab.apps.llm.stored import StoredTensor
from vklab.runtime import loading, open_devices
from vklab.runtime.observe import timestamps

# A GPU works before each series, so that its clocks are up; a series is short, so that they stay.
WARM_S, SERIES, RUNS = 0.1, 4, 8


def alone_us(file: GgufFile, device: int | str | None, rows: int) -> float:
    """Return the device's time for all products of the layers with the rows of a prompt, in us.

    One matrix of each shape and format is multiplied in a session of its own by rows that are
    halves already (float32 on a CPU's driver). What counts are its dispatches: the product, and
    before it the one that dequantises the weights; each runs alone, from its start to its end.
    The sum counts a matrix as often as the model has one like it. Rounding rows, norms,
    attention, gates and the logits are left out.

    Args:
        file: the model.
        device: index or part of a name.
        rows: tokens of the prompt.
    """
    info = open_devices.select(device)
    with roofs.heater(info.index) as warm:
        return sum(count * _product_us(tensor, info.index, rows, info.is_cpu, warm)
                   for tensor, count in products.layer_matrices(file))  # fmt: skip


def _product_us(
    tensor: StoredTensor, device: int, rows: int, on_cpu: bool, warm: Callable[[float], object]
) -> float:
    """Return the least of the medians of some series.

    Args:
        tensor: the matrix.
        device: the device's index.
        rows: the rows that it is multiplied by.
        on_cpu: whether the device is a CPU's driver.
        warm: occupies the device before each series.
    """
    dtype = "float32" if on_cpu else "float16"
    x = np.random.default_rng(0).standard_normal((rows, tensor.shape[1])).astype(dtype)
    medians = []
    graph = products.product_graph(tensor, rows, dtype)
    with loading.load(graph, device) as session, session.bind({"x": x}) as binding:
        binding.run()
        program = binding.program
        counted = [step in program.chunk.dispatches for step in program.chunk.steps]
        with timestamps.timed(program) as work:
            for _ in range(1 if on_cpu else SERIES):
                if not on_cpu:
                    warm(WARM_S)
                samples = []
                for _ in range(1 if on_cpu else RUNS):
                    program.submit(work.submission)
                    program.wait()
                    spans = zip(work.sample().step_ns, counted, strict=True)
                    samples.append(sum(ns for ns, counts in spans if counts) / 1e3)
                medians.append(median(samples))
    return min(medians)
