"""`vklab tune`: kernels measured on a device, kept, and used by the sessions loaded afterwards."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import DATA, model, random_array, value
from support.runs.waits import LIMIT_S
from vklab.apps import cli
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.weights import synthetic
from vklab.plan.tuning import candidates
from vklab.runtime import open_devices
from vklab.runtime.observe import trials, tuned, tuning
from vklab.types import DeviceInfo, Dispatch

X = random_array((16, 24), 1)
# What joins two products leaves nothing to choose.
ONE_BY_ONE = "row_chains,fuse_squeezes"
# Rules in the order in which fabricated times prefer them.
PREFERRED = ("plain", "few_rows", "tiled", "shared_rows", "pairs", "sliced", "rows_of_blocks")


@pytest.fixture(autouse=True)
def few(monkeypatch, tmp_path):
    """Measure few candidates in few passes, and keep them in a folder of the test."""
    shaders = tmp_path / "shared"  # compiled kernels stay where all tests find them
    monkeypatch.setattr(candidates, "MOST", 1)
    monkeypatch.setattr(trials, "MOST_PASSES", 3)
    monkeypatch.setattr(trials, "WHOLE_RUNS", 2)
    monkeypatch.setattr(trials, "WARM_S", 0.0)
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", ONE_BY_ONE)
    kept = tuned.store.folder
    monkeypatch.setattr(
        tuned.store, "folder", lambda kind: shaders if kind == "tuned" else kept(kind)
    )


@pytest.fixture
def known(monkeypatch):
    """Replace measured times by the preference of each rule: the plain kernel is the fastest."""
    real = trials.Trial.run

    def run(trial):
        real(trial)
        last = len(PREFERRED)
        rank = {rule: number for number, rule in enumerate(PREFERRED)}
        times = {
            name: 1000.0 * (1 + rank.get(choice[0], last)) for name, choice in trial.choices.items()
        }
        return sum(times.values()), times

    monkeypatch.setattr(trials.Trial, "run", run)


def two_products() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"], "second"),
    ]
    weights = {"w": random_array((24, 16), 2), "v": random_array((16, 8), 3)}
    return model(nodes, [value("x", X.shape)], ["y"], weights)


def test_what_is_faster_is_kept_and_used(device_index, known, monkeypatch):
    proto = two_products()
    with vklab.load(proto, device_index) as session:
        before = session.run({"x": X})["y"]
        result = tuning.tune(session, {"x": X})
        assert not any(step.measured for step in session.plan.dispatches)  # it keeps its plan
        info = session.device
    assert (result.kept, result.clock, result.notes) == (2, "device", ())
    assert [row.choice for row in result.rows] == [
        ("plain", (), row.choice[2]) for row in result.rows
    ]
    assert result.whole.after_ns < result.whole.before_ns and result.whole.difference < 1e-5
    assert tuned.kept(info).keys() == {row.problem for row in result.rows}
    with vklab.load(proto, device_index) as session:
        assert session.plan.summary()["tuned_dispatches"] == 2
        np.testing.assert_allclose(session.run({"x": X})["y"], before, rtol=1e-4, atol=1e-5)
    monkeypatch.setenv("VKLAB_DISABLE_TUNED", "1")
    with vklab.load(proto, device_index) as session:
        assert session.plan.summary()["tuned_dispatches"] == 0


def test_a_device_without_timestamps_times_whole_runs(device_index, known, monkeypatch):
    monkeypatch.setattr(trials.Trials, "has_clock", False)
    with vklab.load(two_products(), device_index) as session:
        result = tuning.tune(session, {"x": X})
    assert result.clock == "host" and len(result.rows) == 2 and result.kept == 2
    assert all(row.before_ns > row.after_ns for row in result.rows)


def test_an_interrupt_keeps_what_was_measured(device_index, known):
    def progress(done, of, what):
        if what == "timing the whole model":
            raise KeyboardInterrupt

    with vklab.load(two_products(), device_index) as session:
        result = tuning.tune(session, {"x": X}, progress=progress)
        assert result.is_interrupted and result.kept == 2 and not result.whole.before_ns
        tuned.clear(session.device)

        def at_once(done, of, what):
            raise KeyboardInterrupt

        result = tuning.tune(session, {"x": X}, progress=at_once)
        assert result.is_interrupted and (result.kept, result.rows) == (0, ())
        assert session.run({"x": X})["y"].shape == (16, 8)


def test_choices_that_make_the_model_slower_or_wrong_are_refused(device_index, known, monkeypatch):
    for whole in (trials.Whole(1000.0, 1100.0, True), trials.Whole(1.0, 1.0, False, float("nan"))):
        monkeypatch.setattr(trials.Trials, "whole", lambda self, best, whole=whole: whole)
        with vklab.load(two_products(), device_index) as session:
            result = tuning.tune(session, {"x": X})
            assert result.kept == 0 and "nothing was kept" in result.notes[0]
            assert tuned.kept(session.device) == {}


def test_a_model_without_products_has_nothing_to_tune(device_index):
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", (3,))], ["y"])
    with vklab.load(proto, device_index) as session:
        result = tuning.tune(session, {"x": X[0, :3]})
    assert result.rows == () and "nothing to tune" in result.notes[0]


def test_the_command(device_index, known, tmp_path, capsys):
    path, on = str(tmp_path / "two.onnx"), ["--device", str(device_index)]
    onnx.save(two_products(), path)
    assert cli.main(["tune", path, "--json", "--limit", "600", *on]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kept"] == 2 and found["whole"]["ratio"] > 1 and len(found["rows"]) == 2
    assert cli.main(["tune", path, *on]) == 0
    assert "whole model" in capsys.readouterr().out
    assert cli.main(["plan", path, *on]) == 0
    assert "`vklab tune`" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["tune", "--show", "--json", *on]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 2
    assert cli.main(["tune", "--show", *on]) == 0
    assert "plain" in capsys.readouterr().out
    assert cli.main(["tune", "--clear", *on]) == 0
    assert "2 choices deleted" in capsys.readouterr().out


def test_a_language_model_is_tuned_by_steps_of_one_token(
    device, known, tmp_path, monkeypatch, capsys
):
    """Take the device for a GPU: on a CPU there is one way to multiply blocks."""
    if "shaderIntegerDotProduct" not in open_devices.open_device(device).info.features:
        pytest.skip("the driver has no dot products of bytes")
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    path = tmp_path / "tiny.gguf"
    synthetic.write(path, "tiny", "Q8_0")
    on = ["--json", "--limit", "600", "--device", str(device)]  # compiling takes most of it
    assert cli.main(["tune", str(path), *on]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kept"] == len(found["rows"]) > 3 and found["whole"]["difference"] == 0
    assert all(row["problem"].startswith("matvec_units") for row in found["rows"])
    with Decoder(path, device, context=64) as decoder:
        steps = decoder.model.binding(1).program.chunk.steps
        measured = {step.measured for step in steps if isinstance(step, Dispatch)} - {""}
    assert measured == {row["problem"] for row in found["rows"]}
    assert cli.main(["tune", str(path), "--dim", "steps=2", *on]) == 2


@pytest.mark.parametrize("arguments", [
    [], ["no_such.onnx"], [str(DATA / "digits_cnn.onnx"), "--dim", "depth=3"],
    [str(DATA / "digits_cnn.onnx"), "--limit", "0"],
    [str(DATA / "digits_cnn.onnx"), "--set", "DISABLE_CACHE=1"],
], ids=["no model", "unknown model", "unknown dimension", "no time", "no cache"])  # fmt: skip
def test_bad_input_of_the_command(arguments, device_index, capsys):
    assert cli.main(["tune", *arguments, "--device", str(device_index)]) == 2
    assert capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["as it is", "as a GPU"])
def test_measured_times_of_all_candidates(kind, device, monkeypatch):
    """Every candidate runs and gives the same outputs, under the validation layer too."""
    if kind == "as a GPU":
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    monkeypatch.setattr(candidates, "MOST", 12)
    real, seen = trials.Trials._time, []

    def timed(found, made, *given):
        seen.extend(trial.outputs() for trial in made)
        real(found, made, *given)

    monkeypatch.setattr(trials.Trials, "_time", timed)
    weights = {"w": random_array((96, 80), 2), "v": random_array((32, 16, 3, 3), 3)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Conv", ["i", "v"], ["c"], pads=[1] * 4),
    ]
    proto = model(nodes, [value("x", (48, 96)), value("i", (1, 16, 12, 12))], ["p", "c"], weights)
    fed = {"x": random_array((48, 96), 4), "i": random_array((1, 16, 12, 12), 5)}
    with vklab.load(proto, device) as session:
        expected = session.run(fed)
        result = tuning.tune(session, fed, limit_s=LIMIT_S)
    assert len(seen) > 4 and len(result.rows) == 2 and all(row.measured > 3 for row in result.rows)
    for outputs in seen:
        for array, right in zip(outputs, expected.values(), strict=True):
            np.testing.assert_allclose(array, right, rtol=1e-4, atol=1e-4)
    with vklab.load(proto, device) as session:
        for array, right in zip(session.run(fed).values(), expected.values(), strict=True):
            np.testing.assert_allclose(array, right, rtol=1e-4, atol=1e-4)
