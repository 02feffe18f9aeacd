"""Real models in many shapes from one session, and a table of what new and seen shapes cost.

VKLAB_TEST_ALL_SHAPES=1 takes the whole range; without it, some of each kind.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import vklab
from support.models import exported_models, light_models
from vklab.graph import passes
from vklab.plan import partition
from vklab.plan import plan as plans
from vklab.runtime import open_devices, program

ALL = bool(os.environ.get("VKLAB_TEST_ALL_SHAPES"))
LENGTHS = (1, 2, 3, 7, 16, 31, 64, 128, 200, 256, 384, 511, 512) if ALL else (1, 2, 7, 64, 128, 511)
BATCHES = (1, 2, 3, 5, 8) if ALL else (1, 3, 8)
PHASES = {
    "partition": (partition, "next_chunk"), "passes": (passes, "run"),
    "plan": (plans, "lower_rewritten"), "record": (program.Program, "record"),
}  # fmt: skip
pytestmark = pytest.mark.slow


def long_bert(length: int) -> onnx.ModelProto:
    """Return the exported BERT with more positions than it was exported with."""
    model = exported_models.load("bert")
    for tensor in model.graph.initializer:
        if tensor.name.endswith("position_ids"):
            tensor.CopyFrom(numpy_helper.from_array(np.arange(length)[None], tensor.name))
        elif tensor.name.endswith("position_embeddings.weight"):
            array = np.resize(numpy_helper.to_array(tensor), (length, tensor.dims[1]))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


@contextmanager
def clock(spent: dict[str, float]) -> Iterator[None]:
    """Sum up the milliseconds that each phase takes."""
    with pytest.MonkeyPatch.context() as patch:
        for label, (owner, name) in PHASES.items():
            patch.setattr(owner, name, _timed(getattr(owner, name), label, spent))
        yield


def _timed(function: Callable[..., Any], label: str, spent: dict[str, float]) -> Any:
    def timed(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            spent[label] = spent.get(label, 0) + (time.perf_counter() - start) * 1e3

    return timed


def report(
    name: str,
    model: onnx.ModelProto,
    bounds: dict[str, int],
    shapes: list[dict[str, int]],
    device: int,
    make: Callable[[dict[str, int]], dict[str, np.ndarray]],
) -> None:
    """Run all shapes twice from one session; check results and memory; print the table."""
    opened = open_devices.open_device(device)
    spent: dict[str, float] = {}
    with clock(spent), vklab.load(model, device, upper_bounds=bounds) as session:
        print(f"\n{name}, at most {bounds}: {session.reserved_bytes:,} bytes reserved")
        print(f"{'shape':>28} {'new ms':>8}", *(f"{p:>10}" for p in PHASES), f"{'seen ms':>8}")
        reserved = opened.allocator.reserved_bytes, session.reserved_bytes
        news = []
        for shape in shapes:
            fed = make(shape)
            spent.clear()
            start = time.perf_counter()
            outputs = session.run(fed)
            middle = time.perf_counter()
            again = session.run(fed)
            end = time.perf_counter()
            news.append((middle - start) * 1e3 - (end - middle) * 1e3)
            text = " ".join(f"{axis}={size}" for axis, size in shape.items())
            print(
                f"{text:>28} {(middle - start) * 1e3:8.1f}",
                *(f"{spent.get(p, 0):10.1f}" for p in PHASES),
                f"{(end - middle) * 1e3:8.1f}",
            )
            for key, expected in session.reference(fed).items():
                np.testing.assert_array_equal(outputs[key], again[key])
                largest = np.abs(expected).max(initial=1e-6)
                assert np.abs(outputs[key] - expected).max(initial=0) <= 1e-3 * largest, shape
        print(f"{name}: a new shape costs {statistics.median(news):.0f} ms (median) before its run")
        # Constants that depend on a shape, such as positions, find room in what is there.
        assert (opened.allocator.reserved_bytes, session.reserved_bytes) == reserved


def test_bert(device_index, capsys):
    model, bounds = long_bert(512), {"batch": 8, "sequence": 512}
    shapes = [{"batch": b, "sequence": n} for n in LENGTHS for b in BATCHES]
    with capsys.disabled():
        report(
            "BERT",
            model,
            bounds,
            shapes,
            device_index,
            lambda shape: exported_models.inputs_of(model, shape),
        )


def test_llama_with_a_cache_that_grows(device_index, capsys):
    model = exported_models.load("llama")
    bounds = {"batch": 2, "sequence": 8, "past": 24, "total": 32}
    shapes = [
        {"batch": b, "sequence": n, "past": p, "total": n + p}
        for b in (1, 2)
        for n, p in ((8, 0), (1, 8), (1, 9), (1, 23), (3, 10), (8, 24))
    ]
    with capsys.disabled():
        report(
            "Llama",
            model,
            bounds,
            shapes,
            device_index,
            lambda shape: exported_models.inputs_of(model, shape),
        )


def test_densenet121(device_index, capsys):
    model = light_models.build("densenet121")
    kind = model.graph.input[0]
    kind.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    most = 32 if ALL else 4
    dims = [d.dim_value for d in kind.type.tensor_type.shape.dim[1:]]
    batches = (1, 2, 3, 7, 8, 31, 32) if ALL else (1, 3, 4)

    def make(shape):
        random = np.random.default_rng(0)
        return {kind.name: random.standard_normal((shape["batch"], *dims), np.float32)}

    with capsys.disabled():
        report(
            "densenet121",
            model,
            {"batch": most},
            [{"batch": n} for n in batches],
            device_index,
            make,
        )
