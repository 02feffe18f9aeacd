"""Time of a model's products alone: what a prompt would take if there were nothing else in it.

Visited by lab 19.
"""

from __future__ import annotations

import time

import numpy as np

from vklab.llm import products
from vklab.llm.gguf import GgufFile
from vklab.llm.stored import StoredTensor
from vklab.runtime import loading, open_devices

__all__ = ["alone_us"]

WARM_S, GPU_TIMES, GPU_REPEATS = 0.12, 3, 10


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
    return sum(count * _product_us(tensor, device, rows)
               for tensor, count in products.layer_matrices(file))  # fmt: skip


def _product_us(tensor: StoredTensor, device: int | str | None, rows: int) -> float:
    """Return the least of the medians of some profiles, at settled clocks."""
    on_cpu = open_devices.select(device).is_cpu
    dtype = "float32" if on_cpu else "float16"
    x = np.random.default_rng(0).standard_normal((rows, tensor.shape[1])).astype(dtype)
    samples = []
    with loading.load(products.product_graph(tensor, rows, dtype), device) as session:
        for _ in range(1 if on_cpu else GPU_TIMES):
            end = time.perf_counter() + (0 if on_cpu else WARM_S)
            while time.perf_counter() < end:
                session.run({"x": x})
            steps = session.profile({"x": x}, repeats=1 if on_cpu else GPU_REPEATS).rows
            samples.append(sum(row.time_ns for row in steps if row.kernel != "copy") / 1e3)
    return min(samples)
