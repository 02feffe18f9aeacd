"""Inputs on the command line: files and values, on each command that runs or plans a model."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import model, value
from vklab.apps import cli


@pytest.fixture
def branching(tmp_path):
    """Return the path of a model with an If whose condition is an input."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], ["made"])], name, [], [value("made", None)]
        )
        for name, op in (("then", "Neg"), ("else", "Exp"))
    }
    proto = model(
        [helper.make_node("If", ["c"], ["y"], "choose", **branches)],
        [value("x", ("n", 2)), value("c", (), TensorProto.BOOL)],
        ["y"],
    )
    onnx.save(proto, tmp_path / "branching.onnx")
    return tmp_path / "branching.onnx"


def facts(capsys, *words: object) -> dict:
    assert cli.main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def expanding(tmp_path):
    """Return the path of a model whose output has the shape that an input says."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["z"]),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    onnx.save(
        model(nodes, [value("x", ("n", 2)), value("shape", (2,), TensorProto.INT64)], ["y"]),
        tmp_path / "expanding.onnx",
    )
    return tmp_path / "expanding.onnx"


def test_a_value_decides_what_is_planned_and_compiled(expanding, capsys, device_index):
    given = ("--input", "shape=[4, 2]", "--device", str(device_index))
    assert cli.main(["plan", str(expanding), *given]) == 0
    assert "float32[4,2]" in capsys.readouterr().out
    made = facts(capsys, "compile", expanding, *given)
    with vklab.load(made["path"], device_index) as session:
        y = session.run(np.ones((1, 2), np.float32), np.int64([4, 2]))["y"]
        assert np.array_equal(y, np.full((4, 2), -1)) and not session.plan_reason
        session.run(np.ones((1, 2), np.float32), np.int64([5, 2]))
        assert session.plan_reason


@pytest.mark.parametrize("condition", ["true", "false"])
def test_a_branch_that_an_input_chooses_is_planned_and_compiled(branching, capsys, device_index,
                                                                condition):  # fmt: skip
    given = ("--input", f"c={condition}", "--dim", "n=3", "--device", device_index)
    assert facts(capsys, "plan", branching, *given)
    assert facts(capsys, "compile", branching, *given)["dispatches"] == 1


def test_a_file_and_lists_of_numbers_are_inputs(branching, tmp_path, capsys, device_index):
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    out = tmp_path / "out"
    for x, rows in ((tmp_path / "x.npy", 4), ("[[1, 1], [1, 1]]", 2)):
        assert (
            cli.main(
                [
                    "run",
                    str(branching),
                    "--device",
                    str(device_index),
                    "--repeat",
                    "1",
                    "--input",
                    f"x={x}",
                    "--input",
                    "c=true",
                    "--output",
                    str(out),
                ]
            )
            == 0
        )
        assert np.array_equal(np.load(out / "y.npy"), np.full((rows, 2), -1, np.float32))
    capsys.readouterr()


def test_a_value_decides_what_is_placed(expanding, capsys, device_index):
    def peak(rows):
        given = ("--input", f"shape=[{rows}, 2]", "--devices", device_index)
        (part,) = facts(capsys, "plan", expanding, *given)["parts"]
        return sum(each["peak_bytes"] for each in part["devices"])

    assert peak(400) > peak(4) + 3000


@pytest.mark.parametrize("command", ["plan", "compile", "run", "profile", "trace", "tune"])
@pytest.mark.parametrize(("given", "words"), [
    ("c=3.x", "neither a file nor a value"), ("x=[[1], [2, 3]]", "x=[[1], [2, 3]]: no float32"),
    ("q=3", "the model has x, c"), ("x=no.npy", "there is no input file"),
])  # fmt: skip
def test_an_input_that_does_not_fit_is_named(branching, capsys, device_index, command, given,
                                             words):  # fmt: skip
    asked = [command, str(branching), "--input", given, "--device", str(device_index)]
    assert cli.main(asked) == 2
    assert words in " ".join(capsys.readouterr().err.split())
