"""Graph passes on a device: results with all of them, with none, and without each one in turn."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs import pass_graphs
from support.models import exported_models, light_models
from vklab.graph import passes

TOLERANCE = 1e-5  # of an output's largest value
SIZES = {"batch": 2, "sequence": 6, "past": 5, "total": 11, "height": 20, "width": 44}
STEPS = [step.name for step in passes.PASSES]
QUICK = ["bert_script"]
NAMES = sorted(path.stem for path in exported_models.FOLDER.glob("*.onnx"))
MODELS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
pytestmark = pytest.mark.full


def run(proto, fed, device, monkeypatch, disabled):
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", disabled)
    with vklab.load(proto, device) as session:
        return session.run(fed)


def check(proto, fed, device, monkeypatch, switches):
    """Compare results under these switches with those of no pass at all."""
    expected = run(proto, fed, device, monkeypatch, "all")
    for disabled in switches:
        for name, got in run(proto, fed, device, monkeypatch, disabled).items():
            truth = expected[name]
            scale = float(np.abs(truth).max(initial=0))
            assert (got.shape, got.dtype) == (truth.shape, truth.dtype)
            np.testing.assert_allclose(
                got,
                truth,
                rtol=0,
                atol=TOLERANCE * scale,
                err_msg=f"{name} without {disabled or 'none'}",
            )


def with_image(name):
    """Return a light CNN and what it is fed."""
    proto = light_models.build(name)
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    return proto, {proto.graph.input[0].name: image}


@pytest.mark.parametrize("name", pass_graphs.GRAPHS)
def test_small_graphs(name, device_index, monkeypatch):
    check(*pass_graphs.GRAPHS[name](), device_index, monkeypatch, [""])


@pytest.mark.parametrize("name", MODELS)
def test_exported_models_with_all_passes(name, device_index, monkeypatch):
    proto = exported_models.load(name)
    check(proto, exported_models.inputs_of(proto, SIZES), device_index, monkeypatch, [""])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_exported_models_without_each_pass(name, device_index, monkeypatch):
    proto = exported_models.load(name)
    check(proto, exported_models.inputs_of(proto, SIZES), device_index, monkeypatch, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", light_models.NAMES)
def test_light_models_without_each_pass(name, device_index, monkeypatch):
    check(*with_image(name), device_index, monkeypatch, STEPS)


@pytest.mark.parametrize(
    "name",
    [
        n if n == "shufflenet" else pytest.param(n, marks=pytest.mark.slow)
        for n in light_models.NAMES
    ],
)
def test_light_models(name, device_index, monkeypatch):
    check(*with_image(name), device_index, monkeypatch, [""])
