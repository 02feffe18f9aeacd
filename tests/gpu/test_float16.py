"""dtype="float16": models of float32 in half precision, their errors, and what overflows."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.transformers import float16

import vklab
from support.graphs.small_models import model, random_array, value
from support.models import exported_models, light_models
from vklab.apps import cli
from vklab.base.names import internal
from vklab.plan import storage
from vklab.runtime.observe import compare
from vklab.settings import settings

SIZES = {"batch": 2, "sequence": 6, "past": 5, "total": 11, "height": 32, "width": 32}
# Largest errors, as a part of an output's largest value: what is measured on lavapipe, doubled.
ERRORS = {
    "bert": 8e-3, "gpt2": 3e-3, "llama": 8e-3, "vit": 4e-3, "lstm": 1.5e-3,
    "mobilenet_v3": 3e-3, "efficientnet_b0": 3e-3, "unet": 4e-3,
}  # fmt: skip
MODELS = sorted(path.stem for path in exported_models.FOLDER.glob("*.onnx"))


def error_of(outputs, expected):
    """Return the largest error, as a part of the largest value of its output."""
    assert all(outputs[n].dtype == e.dtype == np.float32 for n, e in expected.items())
    return max(float(np.abs(outputs[n] - e).max() / np.abs(e).max()) for n, e in expected.items())


def compared(proto, inputs, device, capsys, name):
    """Run a model in both precisions; print a line on it, and return the error of float16."""
    rows = []
    for dtype in (None, "float16"):
        with vklab.load(proto, device, dtype=dtype) as session:
            error = error_of(session.run(inputs), session.reference(inputs))
            time_ms = np.median(session.time(inputs, repeats=3).host_ns) / 1e6
            rows.append((error, time_ms, session.plan.summary(), set(session.host_reasons)))
    (wide, before_ms, before, hosted), (error, after_ms, after, also_hosted) = rows
    assert hosted == also_hosted
    weights, arena = (after[key] / max(before[key], 1) for key in ("weights_bytes", "arena_bytes"))
    with capsys.disabled():
        print(
            f"\n{name}: error {wide:.1e} in float32, {error:.1e} in float16; {weights:.3f} of "
            f"the weights, {arena:.3f} of the arena; {before['dispatches']} dispatches, "
            f"then {after['dispatches']}; {before_ms:.1f} ms, then {after_ms:.1f}"
        )
    assert weights <= 0.55
    return error


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_exported_models_are_nearly_as_right(device_index, name, capsys):
    proto, family = exported_models.load(name), name.removesuffix("_script")
    error = compared(proto, exported_models.inputs_of(proto, SIZES), device_index, capsys, name)
    assert 1e-5 < error <= ERRORS[family]  # below, nothing was rounded


@pytest.mark.slow
@pytest.mark.parametrize("name", light_models.NAMES)
def test_light_cnns_are_nearly_as_right(device_index, name, capsys, monkeypatch):
    monkeypatch.setenv("VKLAB_TIMEOUT", "300")  # vgg19, where the CPU plays the GPU
    proto = light_models.build(name)
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    inputs = {proto.graph.input[0].name: image}
    assert compared(proto, inputs, device_index, capsys, name) <= 1e-2


@pytest.mark.full
@pytest.mark.parametrize("disabled", ["", pytest.param("all", marks=pytest.mark.slow)])
def test_bert_is_right_where_a_row_is_all_masked(device_index, disabled):
    proto = exported_models.load("bert_script")
    inputs = exported_models.inputs_of(proto, SIZES)
    mask = next(name for name in inputs if "mask" in name)
    inputs[mask][1] = 0
    with (
        settings(DISABLE_PASSES=disabled),
        vklab.load(proto, device_index, dtype="float16") as session,
    ):
        outputs, expected = session.run(inputs), session.reference(inputs)
        assert not exported_models.host_reasons(session)
    assert all(np.isfinite(array).all() for array in expected.values())
    assert 1e-5 < error_of(outputs, expected) <= ERRORS["bert"]


def additive(mask):
    """Return a model of softmax(x + mask) of float32[2,3]."""
    nodes = [helper.make_node("Add", ["x", "m"], ["s"]), helper.make_node("Softmax", ["s"], ["y"])]
    return model(nodes, [value("x", (2, 3))], ["y"], {"m": np.float32(mask)})


def test_masks_beyond_float16_mask_and_infinity_stays_infinity(device):
    low = np.finfo(np.float32).min
    x = np.float32([[-30, -20, -25], [1, 2, 3]])
    with vklab.load(additive([[low] * 3, [0, low, 0]]), device, dtype="float16") as session:
        np.testing.assert_allclose(session.run(x)["y"], session.reference({"x": x})["y"], atol=1e-3)
        assert session.check({"x": x}, nodes=True).passed
    with vklab.load(additive([[-np.inf] * 3, [0, low, 0]]), device, dtype="float16") as session:
        y = session.run(x)["y"]
        assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()


@pytest.mark.full
def test_sums_are_kept_in_float32(device_index):
    # Ones added up in float16 stay at 2048, where 1 is less than half a step.
    count = 60 * 75
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Reshape", ["x", "image"], ["i"]),
        helper.make_node("ReduceMean", ["i"], ["mean"], axes=[2, 3]),
        helper.make_node("GlobalAveragePool", ["i"], ["pool"]),
        helper.make_node("Reshape", ["x", "pixels"], ["p"]),
        helper.make_node("Conv", ["p", "filters"], ["conv"]),
        helper.make_node("Softmax", ["x"], ["share"]),
        helper.make_node("LayerNormalization", ["x", "ones"], ["norm"]),
    ]
    constants = {
        "w": np.ones((count, 3), np.float32),
        "image": np.int64([1, 1, 60, 75]),
        "pixels": np.int64([1, count, 1, 1]),
        "ones": np.ones(count, np.float32),
        "filters": np.ones((2, count, 1, 1), np.float32),
    }
    outputs = ["product", "mean", "pool", "conv", "share", "norm"]
    proto = model(nodes, [value("x", (1, count))], outputs, constants)
    x = np.ones((1, count), np.float32)
    x[0, : count // 2] = 0.5
    with vklab.load(proto, device_index, dtype="float16") as session:
        got, right = session.run(x), session.reference({"x": x})
    for name in outputs:
        np.testing.assert_allclose(got[name], right[name], rtol=1e-3, err_msg=name)


# -------------------------------------------------------------------------------------- overflow


def overflowing():
    """Return a model whose Conv makes some 97 thousand, and whose result is near 1."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv_1"),
        helper.make_node("Relu", ["c"], ["r"], "relu_1"),
        helper.make_node("GlobalAveragePool", ["r"], ["m"], "mean"),
        helper.make_node("Div", ["r", "m"], ["y"], "share"),
    ]
    weights = np.full((4, 3, 3, 3), 90, np.float32)
    return model(nodes, [value("x", (1, 3, 8, 8))], ["y"], {"w": weights})


X = {"x": np.random.default_rng(0).uniform(30, 45, (1, 3, 8, 8)).astype(np.float32)}


@pytest.mark.full
def test_overflow_is_reported_with_the_node_and_the_advice_helps(device):
    with vklab.load(overflowing(), device, dtype="float16") as session:
        whole, nodes = session.check(X), session.check(X, nodes=True)
        with settings(CHECK="nodes"), pytest.raises(vklab.CheckError, match="KEEP_FLOAT32=conv_1"):
            session.run(X)
    assert not whole.passed and "--check=nodes" in whole.note
    assert not nodes.passed and nodes.nodes == 1
    assert "node 'conv_1' (Conv): 144 of 144 values overflow float16" in nodes.note
    assert nodes.note.endswith("keep it in float32 by KEEP_FLOAT32=conv_1")
    with (
        settings(KEEP_FLOAT32="conv_1"),
        vklab.load(overflowing(), device, dtype="float16") as session,
    ):
        assert session.check(X).passed and session.check(X, nodes=True).passed


def test_the_command_line_computes_in_float16(device_index, tmp_path, capsys):
    path, where = str(tmp_path / "model.onnx"), ["--device", str(device_index)]
    onnx.save(overflowing(), path)
    np.save(tmp_path / "x.npy", X["x"])
    asked = ["run", path, *where, "--input", f"x={tmp_path / 'x.npy'}", "--repeat", "1"]
    asked += ["--check=nodes", "--dtype", "float16"]
    assert cli.main(asked) == 1
    assert "keep it in float32 by KEEP_FLOAT32=conv_1" in " ".join(capsys.readouterr().out.split())
    assert cli.main([*asked, "--set", "KEEP_FLOAT32=conv_1"]) == 0
    capsys.readouterr()
    assert cli.main(["plan", path, *where, "--dtype", "float16"]) == 0
    stored = storage.stored_dtype("float16", vklab.devices()[device_index])
    size = 108 * np.dtype(stored).itemsize  # devices without halves store float32
    assert re.search(rf"weights +{size} B", capsys.readouterr().out)


@pytest.mark.parametrize("wrong", ["half", "float32", "int8"])
def test_an_unknown_dtype_is_refused(device_index, wrong):
    with pytest.raises(vklab.ModelError, match=f"dtype='{wrong}'.* float16"):
        vklab.load(overflowing(), device_index, dtype=wrong)


# ------------------------------------------------------------------------------ models and devices


@pytest.mark.full
def test_a_float16_model_runs_as_it_is_and_is_checked_by_its_own_tolerances(device_index):
    proto = float16.convert_float_to_float16(exported_models.load("bert"))
    inputs = exported_models.inputs_of(proto, SIZES)
    for dtype in (None, "float16"):
        with vklab.load(proto, device_index, dtype=dtype) as session:
            outputs = session.run(inputs)
            assert not exported_models.host_reasons(session)
            assert {array.dtype for array in outputs.values()} == {np.dtype("float16")}
            assert session.check(inputs).passed


def test_a_second_shape_has_the_same_weights(device_index):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    proto = model(nodes, [value("x", ("n", 16))], ["y"], {"w": random_array((16, 8))})
    with vklab.load(proto, device_index, dtype="float16") as session:
        kept = []
        for n in (2, 3):
            assert session.check({"x": random_array((n, 16))}).passed
            kept.append(session.plan.chunks[0].constants[internal("w", "float16")].constant)
    assert kept[0] is kept[1] or kept[0].dtype == np.float32  # where there is no float16


def test_tolerances_are_those_of_float16():
    rtol, atol = compare.HALF
    assert 2**-11 < rtol < 1e-2 and max(ERRORS.values()) < atol <= 2e-2
