"""The five models of the foundation: right on every device, all of it, and breakable."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import vklab
from support.graphs.small_models import DATA
from support.runs.overlay import write_function, write_kernel, write_wrong_store
from vklab import settings
from vklab.apps.compare.models import graphs
from vklab.runtime import upload, weights
from vklab.runtime.observe import compare
from vklab.types import DeviceInfo
from vklab.vulkan.memory import Buffer

NAMES = ["digits_cnn", "mini_classifier", "mnist12", "mlp", "conv_few"]
# Every rule of plan.variants is tried on every device: as the device is, and as a GPU would run.
SWITCHES = {"": {}, "staged": {"DISABLE_DIRECT_IO": True}, "plain": {"DISABLE_VARIANTS": True}}


@functools.cache
def model_of(name):
    """Return the model: a file's path, or bytes."""
    path = DATA / f"{name}.onnx"
    return path if path.exists() else graphs.build(name).SerializeToString()


def inputs_of(session, batch=1, seed=0):
    """Return random inputs that fit a session."""
    random = np.random.default_rng(seed)
    shapes = [[d if isinstance(d, int) else batch for d in i.shape] for i in session.inputs]
    return {
        info.name: random.standard_normal(shape).astype(info.dtype)
        for info, shape in zip(session.inputs, shapes, strict=True)
    }


def assert_right(session, inputs):
    comparison = session.check(inputs)
    assert comparison.passed and comparison.max_abs_error <= 1e-4, comparison
    summary = session.plan.summary()
    assert summary["host_nodes"] == [] and summary["dispatches"] > 0


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_onnx_runtime(device, name, switches):
    with settings.settings(**SWITCHES[switches]), vklab.load(model_of(name), device) as session:
        for seed in (0, 1):
            assert_right(session, inputs_of(session, seed=seed))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_kernels_that_a_gpu_gets(device, name, monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    with vklab.load(model_of(name), device) as session:
        assert_right(session, inputs_of(session))


def test_agrees_where_the_host_cannot_see_device_memory(device, monkeypatch):
    class Hidden(Buffer):
        mapped = None

    monkeypatch.setattr(weights, "Buffer", Hidden)
    monkeypatch.setattr(upload, "STAGING_BYTES", 5000)
    with (
        settings.settings(DISABLE_DIRECT_IO=True),
        vklab.load(model_of("mini_classifier"), device) as session,
    ):
        assert_right(session, inputs_of(session))


@pytest.mark.parametrize("batch", [2, 3, 7])
def test_agrees_on_batches(device_index, batch):
    with vklab.load(model_of("digits_cnn"), device_index) as session:
        assert_right(session, inputs_of(session, batch))


# --------------------------------------------------------------------------------------- digits


@functools.cache
def digits():
    """Return all images and labels, and ONNX Runtime's logits."""
    data = np.load(DATA / "digits.npz")
    images = data["images"]
    with vklab.load(model_of("digits_cnn")) as session:
        return images, data["labels"], session.reference({"image": images})["logits"]


@pytest.mark.full
def test_all_digits_at_once(device_index):
    images, labels, expected = digits()
    assert len(images) == 1797
    with vklab.load(model_of("digits_cnn"), device_index) as session:
        got = session.run(images)["logits"]
    comparison = compare.compare({"logits": got}, {"logits": expected})
    assert comparison.passed and comparison.max_abs_error <= 1e-4, comparison
    np.testing.assert_array_equal(got.argmax(1), expected.argmax(1))
    assert (got.argmax(1) == labels).mean() >= 0.97


def test_digits_one_by_one(device_index):
    images, _, expected = digits()
    with vklab.load(model_of("digits_cnn"), device_index) as session:
        for number in range(0, 1797, 37):
            got = session.run(images[number : number + 1])["logits"]
            np.testing.assert_allclose(got, expected[number : number + 1], rtol=1e-4, atol=1e-4)


def test_a_run_does_not_depend_on_the_one_before(device_index):
    images, _, _ = digits()
    with vklab.load(model_of("digits_cnn"), device_index) as session:
        first = session.run(images[:3])["logits"]
        session.run(np.full_like(images[:3], np.nan))
        np.testing.assert_array_equal(session.run(images[:3])["logits"], first)


def test_nan_in_the_input_reaches_the_output(device):
    images, _, _ = digits()
    spoiled = images[:2].copy()
    spoiled[1] = np.nan
    with vklab.load(model_of("digits_cnn"), device) as session:
        assert session.check({"image": spoiled}).passed
        assert np.isnan(session.run(spoiled)["logits"]).any(1).tolist() == [False, True]


# ------------------------------------------------------------------------------------- breaking


def kernels_in_use(device_index):
    """Return the kernels that the example model's plan uses on a device."""
    with vklab.load(model_of("digits_cnn"), device_index) as session:
        session.run(digits()[0][:2])
        return sorted({dispatch.kernel for dispatch in session.plan.dispatches})


# Besides a result that is off by one per cent, which every kernel gets.
MISTAKES = {
    "pool": ("value > result", "value < result"),
    "softmax": ("exp(", "exp2("),
}


@pytest.mark.parametrize("as_gpu", [False, True], ids=["as-it-is", "as-gpu"])
def test_breaking_any_one_kernel_makes_the_check_fail(device_index, as_gpu, tmp_path, monkeypatch):
    if as_gpu:
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    used = kernels_in_use(device_index)
    assert len(used) >= 3
    for kernel in used:
        folders = [write_wrong_store(tmp_path / kernel, kernel)]
        if kernel in MISTAKES:
            folders.append(write_kernel(tmp_path / f"{kernel}2", kernel, MISTAKES[kernel]))
        for folder in folders:
            assert is_noticed(folder, device_index), f"{kernel} of {folder} still passes"


def is_noticed(folder, device_index):
    """Tell whether the check of the example model fails with the shaders of a folder."""
    with (
        settings.settings(SHADERS=str(folder)),
        vklab.load(model_of("digits_cnn"), device_index) as session,
    ):
        comparison = session.check({"image": digits()[0][:2]})
    return not comparison.passed and bool(comparison.worst)


@pytest.mark.parametrize("expression", [
    "min(a, Real(0))",
    *(pytest.param(text, marks=pytest.mark.slow) for text in ("a", "Real(0)", "abs(a)")),
])  # fmt: skip
def test_breaking_relu_makes_the_check_fail(device_index, tmp_path, expression):
    assert is_noticed(write_function(tmp_path, "relu", expression), device_index)


def test_an_overlay_that_changes_nothing_passes(device_index, tmp_path):
    folder = write_kernel(tmp_path, "pool", ("R result", "R  result"))
    assert not is_noticed(folder, device_index)
