"""Recordings shipped in data/recorded: complete, of models that exist, without private paths."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from vklab.apps.compare import models
from vklab.apps.compare.backend import Dtypes, ModelSource
from vklab.apps.compare.report import recorded
from vklab.errors import ModelError

FACTORY = "vklab.apps.compare.models:encoder"


@pytest.mark.parametrize("path", recorded.shipped(), ids=lambda path: path.stem)
def test_a_recording_says_where_it_comes_from_and_holds_numbers(path):
    for each in recorded.read(path):
        assert each.model["factory"].rpartition(":")[2] in models.MODELS
        assert all(each.provenance[name] for name in recorded.PROVENANCE if name != "source")
        assert not re.search(r"(^|\s)[/~]|[A-Z]:\\", each.provenance["command"])
        assert each.latencies_ns and each.size_bytes > 0
        for array in each.outputs.values():
            assert array.size and np.isfinite(array).all()


@pytest.mark.parametrize("name", models.MODELS)
def test_rows_of_a_cuda_device_are_recorded_for_each_model(name):
    source = ModelSource(name, factory=models.factory(name))
    found = recorded.of_model(recorded.shipped(), source)
    assert set(found) >= {
        "vklab-0-float32",
        "vklab-0-float16",
        "torch-cuda-eager-float32",
        "torch-cuda-eager-tf32",
        "torch-cuda-eager-float16",
        "torch-cuda-compiled-float32",
        "onnxruntime-cuda-float32",
        "onnxruntime-cuda-tf32",
        "onnxruntime-cuda-float16",
    }
    assert len({each.outputs["output"].shape for each in found.values()}) == 1
    for backend in ("float32", "tf32", "float16"):  # by nodes, CUDA and not the CPU ran them
        assert [*found[f"onnxruntime-cuda-{backend}"].nodes] == ["CUDAExecutionProvider"]


def test_a_file_keeps_shared_inputs_once_and_the_percentiles_of_many_times(tmp_path):
    rng = np.random.default_rng(3)
    inputs = {"x": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)}
    times = tuple(rng.integers(10_000, 90_000, 2999).tolist())
    origin = {**dict.fromkeys(recorded.PROVENANCE, "somewhere"), "versions": {"python": "3.12"}}
    dtypes = Dtypes("float32", "float32", "float32")
    made = [
        recorded.Recording(
            name,
            "a device",
            dtypes,
            {"factory": FACTORY},
            given,
            {"y": np.full(3, number, np.float32)},
            origin,
            latencies_ns=taken,
            size_bytes=1,
        )
        for number, (name, given, taken) in enumerate(
            [("a", inputs, times), ("b", inputs, times[:7]), ("c", {"x": np.ones(2)}, ())]
        )
    ]
    path = tmp_path / "several.npz"
    recorded.write(path, made)
    with np.load(path) as file:
        assert [name for name in file.files if name.startswith("inputs/")] == [
            "inputs/0/x",
            "inputs/2/x",
        ]
    again = recorded.read(path)
    for each, other in zip(made, again, strict=True):
        assert np.array_equal(each.inputs["x"], other.inputs["x"])
        assert np.array_equal(each.outputs["y"], other.outputs["y"])
    assert len(again[0].latencies_ns) == recorded.MOST_TIMES
    assert again[1].latencies_ns == times[:7] and again[2].latencies_ns == ()
    for share in (0, 5, 50, 95, 100):
        exact = np.percentile(times, share)
        assert abs(np.percentile(again[0].latencies_ns, share) - exact) <= 0.01 * exact
    recorded.write(path, [dataclasses.replace(made[2], provenance={**origin, "versions": "3"})])
    with pytest.raises(ModelError, match="versions of c are no names"):
        recorded.read(path)
