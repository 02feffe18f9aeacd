"""Default classifiers of scikit-learn on the command line: sequences of maps, and text inputs."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs import classifiers
from support.graphs.small_models import model, value
from vklab import CheckError, settings
from vklab.apps import cli
from vklab.runtime.observe import compare

X = np.array([[1, 0, 0], [-1, 0, 0], [2, 1, 1]], np.float32)
MAPS = [{0: 0.125, 1: 0.875}, {0: 0.75, 1: 0.25}]


@pytest.fixture
def forest(tmp_path):
    """Return the path of a forest with a ZipMap."""
    onnx.save(classifiers.forest(), tmp_path / "forest.onnx")
    return str(tmp_path / "forest.onnx")


@pytest.fixture
def encoder(tmp_path):
    """Return the path of a model with a text input."""
    onnx.save(classifiers.encoder(), tmp_path / "encoder.onnx")
    return str(tmp_path / "encoder.onnx")


def facts(capsys, *arguments, code=0):
    assert cli.main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def on(index: int) -> tuple[str, ...]:
    return ("--device", str(index))


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
@pytest.mark.parametrize("check", [[], ["--check"], ["--check=nodes"], ["--set", "CHECK=outputs"],
                                   ["--set", "CHECK=nodes"]])  # fmt: skip
def test_a_classifier_runs_and_is_checked(capsys, device_index, forest, tmp_path, check):
    np.save(tmp_path / "X.npy", X[:2])
    line = ["run", forest, "--input", f"X={tmp_path / 'X.npy'}", "--repeat", "1", *check]
    found = facts(capsys, *line, "--output", str(tmp_path / "out"), *on(device_index))
    assert found["outputs"] == {
        "label": {"dtype": "int64", "shape": [2]},
        "probabilities": {"dtype": "sequence(map)", "shape": [2]},
    }
    if check[:1] in (["--check"], ["--check=nodes"]):
        assert found["check"]["passed"]
    saved = np.load(found["files"]["probabilities"])  # without pickle
    assert saved["probabilities[1]"].tolist() == [0.875, 0.25]
    assert cli.main([*line, *on(device_index)]) == 0
    assert "output   probabilities: sequence(map)[2]" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_difference_inside_a_map_is_found(device_index):
    with vklab.load(classifiers.forest(), device_index) as session:
        assert session.run(X[1::-1])["probabilities"][::-1] == MAPS
        assert session.check({"X": X}).passed
        expected = session.reference({"X": X})
        expected["probabilities"][2][1] = 0.5
        found = compare.compare(session.run(X), expected)
    assert not found.passed and found.max_abs_error == pytest.approx(0.375)
    assert found.worst[0] == {
        "output": "probabilities[1]",
        "index": [2],
        "got": 0.875,
        "expected": 0.5,
    }


def test_sequences_and_text_are_compared():
    one = {"s": [np.ones(2), np.zeros(3)], "t": np.array(["a", "b"], object), "o": None}
    assert compare.compare(one, one).passed
    for other, name in (
        ({**one, "s": one["s"][:1]}, "s['length']"),
        ({**one, "s": [np.ones(2), np.ones(3)]}, "s[1]"),
        ({**one, "t": np.array(["a", "c"], object)}, "t"),
    ):
        found = compare.compare(one, other)
        assert not found.passed and found.worst[0]["output"] == name, found
    json.dumps(found.summary())


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_check_stops_at_a_wrong_map(device_index, monkeypatch):
    made = classifiers.forest()
    with settings.settings(CHECK="outputs"), vklab.load(made, device_index) as session:
        session.run(X)
        monkeypatch.setattr(
            "vklab.runtime.on_cpu.reference_process.ProcessModel.run",
            lambda self, inputs: {"label": np.array([1, 0, 1]), "probabilities": [MAPS[0]] * 3},
        )
        with pytest.raises(CheckError, match=r"probabilities\[0\]"):
            session.run(X)


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_text_inputs_compile_and_run(capsys, device_index, encoder, tmp_path):
    target = str(tmp_path / "encoder.vklab")
    facts(capsys, "compile", encoder, "-o", target, *on(device_index))
    for path in (encoder, target):
        with vklab.load(path, device_index) as session:
            made = session.run([["Ulm"]], np.ones((1, 1), np.float32))["y"]
            assert made.tolist() == [[3.0]] and not session.plan_reason
        found = facts(capsys, "run", path, "--check", "--repeat", "1", *on(device_index))
        assert found["check"]["passed"]
    assert cli.main(["run", encoder, "--repeat", "1", *on(device_index)]) == 0
    assert "city: string[1, 1], empty text" in capsys.readouterr().out
    assert cli.main(["plan", encoder, *on(device_index)]) == 0


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_sequence_as_input_compiles(capsys, device_index, tmp_path):
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node("SequenceLength", ["s"], ["n"])
    made = model([node], [helper.make_value_info("s", kind)], [value("n", (), TensorProto.INT64)])
    onnx.save(made, tmp_path / "sequence.onnx")
    path = str(tmp_path / "sequence.onnx")
    assert cli.main(["compile", path, *on(device_index)]) == 0
    assert "open dimensions" not in capsys.readouterr().out
    with vklab.load(tmp_path / "sequence.vklab", device_index) as session:
        assert session.run({"s": [np.ones(2, np.float32)] * 3})["n"] == 3
    assert cli.main(["run", path, *on(device_index)]) == 2
    assert "Session.run" in capsys.readouterr().err
