"""Chosen outputs: of one run, of a model at load, on the command line."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.graphs.state_models import cell, step_inputs
from vklab.apps import cli
from vklab.errors import ModelError
from vklab.runtime.io_binding import IOBinding

node = helper.make_node
SHAPE = (2, 3)
A, X = value("a", SHAPE), value("x", SHAPE)


@pytest.fixture(autouse=True)
def det_on_host(monkeypatch):
    monkeypatch.setenv("VKLAB_HOST", "Det")


def host_model():
    """Build y = Relu(Det of a square), and a2 = a + x; Det is kept on the host."""
    nodes = [
        node("Add", ["a", "x"], ["a2"]),
        node("MatMul", ["a2", "w"], ["m"]),
        node("Det", ["m"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    return model(nodes, [X, A], ["y", "a2"], {"w": random_array((3, 2))})


def test_a_run_returns_and_copies_only_chosen_outputs(device, monkeypatch):
    real, seen = IOBinding.copy_out, []

    def copy_out(binding, names=()):
        seen.append([*names])
        return real(binding, names)

    monkeypatch.setattr(IOBinding, "copy_out", copy_out)
    with vklab.load(cell("rows"), device) as session:
        given = {**step_inputs("cell", 1), "h": step_inputs("cell", 2)["x"]}
        expected = session.run(given)
        for chosen in (["h2"], ("y",), ["h2", "y"], ["y", "y"], "h2"):
            seen.clear()
            outputs = session.run(given, outputs=chosen)
            names = ["h2"] if chosen == "h2" else [*dict.fromkeys(chosen)]
            assert [*outputs] == names and seen == [names]
            for name, array in outputs.items():
                np.testing.assert_array_equal(array, expected[name], strict=True)
        for chosen, words in (
            (["z"], "no output 'z'; choose from y, h2"),
            ([], "no output is chosen; choose from y, h2"),
        ):
            with pytest.raises(ModelError, match=words):
                session.run(given, outputs=chosen)
        with pytest.raises(ModelError, match="are missing"):
            session.run({"x": given["x"]}, outputs=["y"])
        monkeypatch.setenv("VKLAB_CHECK", "outputs")
        assert [*session.run(given, outputs=["h2"])] == ["h2"]


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_run_with_host_nodes_returns_chosen_outputs(device_index):
    with vklab.load(host_model(), device_index) as session:
        given = {"x": random_array(SHAPE), "a": random_array(SHAPE, 1)}
        assert [*session.run(given, outputs=["a2"])] == ["a2"]


def test_load_drops_the_nodes_that_only_other_outputs_need(device_index, recwarn):
    given = {"x": random_array(SHAPE), "a": random_array(SHAPE, 1)}
    with vklab.load(host_model(), device_index, outputs=["a2"]) as session:
        assert session.outputs == ("a2",) == tuple(info.name for info in session.output_infos)
        assert [node.op_type for node in session.graph.nodes] == ["Add"]
        assert [*session.run(given)] == ["a2"] == [*session.reference(given)]
        assert session.check(given).passed and session.check(given, nodes=True).passed
        assert not session.host_reasons and [i.name for i in session.inputs] == ["x", "a"]
        assert session.bind(given, state={"a": "a2"}).reason == ""
    assert not [w for w in recwarn if issubclass(w.category, vklab.HostWarning)]
    with pytest.raises(ModelError, match="no output 'm'; choose from y, a2"):
        vklab.load(host_model(), device_index, outputs=["m"])


def test_the_command_line_chooses_outputs(device_index, tmp_path, capsys):
    path, compiled = tmp_path / "cell.onnx", tmp_path / "cell.vklab"
    onnx.save(cell(), path)
    line = ["run", str(path), "--repeat", "1", "--device", str(device_index)]
    wanted = ["--output", str(tmp_path / "made"), "--outputs"]
    assert cli.main([*line, "--json", "--check", *wanted, "h2"]) == 0
    assert [*json.loads(capsys.readouterr().out)["outputs"]] == ["h2"]
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["h2.npy"]
    assert cli.main([*line, *wanted, "h2, y"]) == 0
    assert len([*(tmp_path / "made").iterdir()]) == 2
    capsys.readouterr()
    assert cli.main([*line, *wanted, "z"]) == 2
    assert "no output 'z'; choose from y, h2" in " ".join(capsys.readouterr().err.split())
    assert cli.main(["compile", str(path), "-o", str(compiled), "--device", line[-1]]) == 0
    with pytest.raises(ModelError, match="choose in each run, with session.run"):
        vklab.load(compiled, device_index, outputs=["h2"])
    with vklab.load(compiled, device_index) as session:
        given = {**step_inputs("cell", 1), "h": step_inputs("cell", 2)["x"]}
        assert [*session.run(given, outputs=["h2"])] == ["h2"]
