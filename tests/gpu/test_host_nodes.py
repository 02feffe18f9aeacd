"""Nodes on the host are never silent: a warning, a log line, repr, the command line and JSON."""

from __future__ import annotations

import json
import logging
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs import classifiers
from support.graphs.small_models import DATA, model, relu, value
from vklab import HostWarning, ModelError, settings
from vklab.apps import cli
from vklab.runtime import kernels

DIGITS = str(DATA / "digits_cnn.onnx")
IMAGE = np.zeros((1, 1, 28, 28), np.float32)
NO_COMPILER = "is not a stock kernel, and there is no shader compiler: pip install it"


@pytest.fixture
def no_kernels(monkeypatch):
    """Be an installation without SPIR-V and without a compiler."""
    monkeypatch.setattr(
        kernels, "unavailable", lambda d: f"kernel {d.kernel} {d.define_values} {NO_COMPILER}"
    )


@pytest.fixture
def forest(tmp_path):
    """Return the path of a random forest."""
    doubles = onnx.TensorProto.DOUBLE
    onnx.save(classifiers.forest(zipmap=False, features=doubles), tmp_path / "forest.onnx")
    return str(tmp_path / "forest.onnx")


def test_a_model_that_runs_on_the_host_warns_once(device_index, no_kernels, caplog):
    caplog.set_level(logging.INFO, "vklab")
    with vklab.load(DIGITS, device_index) as session:
        with pytest.warns(HostWarning, match=r"10 of 10 nodes .* no shader compiler") as found:
            session.run(IMAGE)
            session.run(IMAGE)
            session.run(np.concatenate([IMAGE, IMAGE]))
        assert len(found) == 1 and found[0].filename == __file__
        assert repr(session).endswith("; 10 of 10 nodes on the host")
        assert str(session.host_nodes).startswith("10 of 10 nodes on the host: 9 (Conv, Relu, Max")
        assert "SUBGROUP" not in str(session.host_nodes)  # one reason, not one for each variant
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert lines == [str(found[0].message)]


def test_a_model_of_known_shapes_warns_when_it_is_loaded(device_index, no_kernels):
    with (
        pytest.warns(HostWarning, match="1 of 1 nodes run on the host"),
        vklab.load(relu((1, 3)), device_index),
    ):
        pass


def test_frames_in_flight_warn_once(device_index, no_kernels):
    with vklab.load(DIGITS, device_index) as session, pytest.warns(HostWarning) as found:
        assert len(list(session.map([{"image": IMAGE}] * 6, in_flight=3))) == 6
    assert len(found) == 1


def test_a_model_without_host_nodes_says_nothing(device_index, caplog, capsys):
    caplog.set_level(logging.WARNING, "vklab")
    with warnings.catch_warnings(), vklab.load(DIGITS, device_index) as session:
        warnings.simplefilter("error")
        session.run(IMAGE)
        assert not session.host_nodes.nodes and "host" not in repr(session)
        assert str(session.host_nodes) == ""
    assert not caplog.records
    assert cli.main(["run", DIGITS, "--repeat", "1", "--device", str(device_index)]) == 0
    assert "host" not in capsys.readouterr().out


def test_a_part_on_the_host_is_counted(device_index):
    with settings.settings(HOST="relu1"), vklab.load(DIGITS, device_index) as session:
        with pytest.warns(HostWarning, match=r"1 of \d+ nodes .*1 \(Relu\): .*VKLAB_HOST=relu1"):
            session.run(IMAGE)
        assert [node.name for node, _ in session.host_nodes.nodes] == ["relu1"]
        assert session.host_nodes.total == 10


def test_run_says_what_ran_on_the_host(capsys, device_index, forest):
    line = ["run", forest, "--repeat", "1", "--device", str(device_index)]
    assert cli.main(line) == 0
    captured = capsys.readouterr()
    assert "host     1 of 1 nodes on the host: 1 (ai.onnx.ml.TreeEnsembleC" in captured.out
    assert "HostWarning" not in captured.err
    assert cli.main([*line, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["nodes"] == 1 and facts["host"].startswith("1 of 1 nodes on the host: ")
    (node,) = facts["host_nodes"]
    assert node["name"] == "forest" and node["op_type"] == "TreeEnsembleClassifier"
    assert node["reason"]


def test_run_says_so_without_a_compiler(capsys, device_index, no_kernels):
    line = ["run", DIGITS, "--repeat", "1", "--device", str(device_index)]
    assert cli.main(line) == 0
    assert "host     10 of 10 nodes on the host: 9 (Conv, Relu, Max" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "given"), [
    ("max_skip_count", 2**31 - 1), ("ngram_indexes", [0, 2**31 - 1]),
])  # fmt: skip
def test_a_node_that_would_take_the_host_hours_or_all_memory_is_refused(device_index, name, given):
    attributes = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "ngram_counts": [0],
        "ngram_indexes": [0, 1],
        "pool_int64s": [2, 3],
    }
    x = np.array([1, 2, 3, 2], np.int32)
    made = {}
    for changes in ({}, {name: given}):
        node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**attributes, **changes})
        given_x = value("x", (4,), onnx.TensorProto.INT32)
        made[name in changes] = model([node], [given_x], ["y"])
    with warnings.catch_warnings(action="ignore"):
        with vklab.load(made[False], device_index) as session:
            assert session.run(x)["y"].tolist() == [2, 1]
        with (
            pytest.raises(ModelError, match=rf"TfIdfVectorizer.*{name} reaches 2147483647; the"),
            vklab.load(made[True], device_index) as session,
        ):
            session.run(x)
