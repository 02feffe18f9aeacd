"""Models exported from PyTorch, by both of its exporters: whole on Vulkan, right in two sizes."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.models import exported_models
from vklab.types import DeviceInfo

TOLERANCE = 1e-3  # of an output's largest value; what is measured is near 1e-6
# The nodes that run on the host, by model; and casts of int64 where a device does not compute it.
HOST_NODES: dict[str, list[str]] = {}
pytestmark = pytest.mark.full


def largest_error(outputs, expected):
    """Return the largest error, as a part of the largest value of its output."""
    assert outputs.keys() == expected.keys()
    worst = 0.0
    for name, truth in expected.items():
        got = outputs[name]
        assert (got.shape, got.dtype) == (truth.shape, truth.dtype), name
        assert np.isfinite(truth).all() and np.ptp(truth) > 0, f"{name} proves nothing"
        worst = max(worst, float(np.abs(got - truth).max() / np.abs(truth).max()))
    return worst


def run_in_two_sizes(name, device, capsys):
    """Run a model in two sizes and in the first again; print one line on it."""
    model = exported_models.load(name)
    errors, first = [], {}
    with vklab.load(model, device) as session:
        for seed, sizes in enumerate(exported_models.sizes_of(name)):
            inputs = exported_models.inputs_of(model, sizes, seed)
            outputs = session.run(inputs)
            errors.append(largest_error(outputs, session.reference(inputs)))
            reasons = exported_models.host_reasons(session)
            assert sorted(reasons) == HOST_NODES.get(name, []), reasons
            first = first or {"inputs": inputs, "outputs": outputs}
        again = session.run(first["inputs"])
        summary = session.plan.summary()
    for key, array in first["outputs"].items():
        np.testing.assert_array_equal(again[key], array, f"{key} depends on the run before")
    with capsys.disabled():
        print(
            f"\n{name}: {len(model.graph.node)} nodes, {summary['dispatches']} dispatches, "
            f"{len(summary['host_nodes'])} on the host, error {max(errors):.1e}"
        )
    assert max(errors) <= TOLERANCE


def test_every_kind_of_model_is_there_from_both_exporters():
    kinds = {f"{kind}{suffix}" for kind in exported_models.SIZES for suffix in ("", "_script")}
    assert set(exported_models.NAMES) == kinds


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name.startswith("unet") else name
        for name in exported_models.NAMES
    ],
)
def test_agrees_with_onnx_runtime(device_index, name, capsys):
    run_in_two_sizes(name, device_index, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", exported_models.NAMES)
def test_agrees_with_the_kernels_that_a_gpu_gets(device, name, capsys, monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    run_in_two_sizes(name, device, capsys)
