"""`vklab plan --devices` and `vklab run --devices`, over two real drivers."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import TensorProto, helper

from support.runs.two_drivers import both
from vklab.apps import cli

PLAN = """
import sys
from vklab.apps import cli
sys.exit(cli.main(["plan", *sys.argv[1:]]))
"""

RUN = PLAN.replace('"plan"', '"run"')


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a model of arithmetic in float32 with one node that needs 64-bit integers."""
    tensor = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Cast", ["a"], ["b"], "wide", to=TensorProto.INT64),
        helper.make_node("Add", ["b", "b"], ["c"], "sum"),
        helper.make_node("Cast", ["c"], ["d"], "back", to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["d"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [tensor("x", TensorProto.FLOAT, ["n", 3])],
        [tensor("y", TensorProto.FLOAT, ["n", 3])],
    )
    path = tmp_path_factory.mktemp("plan") / "mixed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def test_json_says_where_each_node_goes_and_why(model):
    pinned = ["--place", "first=swiftshader", "--place", "last=swift", "--dim", "n=5"]
    said = json.loads(both(PLAN, model, "--devices", "all", *pinned, "--cap", "llvm=64M", "--json"))
    names = {device["index"]: device["name"] for device in said["devices"]}
    (part,) = said["parts"]
    where = {node["name"]: names[node["device"]] for node in part["nodes"]}
    why = {node["name"]: node["reason"] for node in part["nodes"]}
    assert "SwiftShader" in where["first"] and "SwiftShader" in where["last"]
    assert "llvmpipe" in where["sum"] and "node 'sum' (Add)" in why["sum"]
    assert "lacks shaderInt64" in why["sum"]
    assert why["first"].startswith("pinned by place={'first':")
    assert [len(stage["nodes"]) for stage in part["stages"]] == [1, 3, 1]
    assert {move["value"]: move["size_bytes"] for move in part["transfers"]} == {"a": 60, "d": 60}
    budgets = {load["name"].split()[0]: load["budget_bytes"] for load in part["devices"]}
    assert budgets["llvmpipe"] == 64 << 20


def test_text_shows_devices_stages_transfers_and_what_was_weighed(model):
    said = both(PLAN, model, "--devices", "llvm,swift", "--policy", "greedy")
    for words in (
        "policy greedy",
        "placement (greedy): 5 nodes on",
        "stages",
        "transfers",
        "the first device that fits",
        "alternatives",
    ):
        assert words in said, said


@pytest.mark.full
def test_run_splits_a_model_as_plan_says(model):
    options = ["--devices", "all", "--place", "first=swift", "--place", "last=swift", "--check"]
    said = json.loads(both(QUIET + RUN, model, *options, "--dim", "n=5", "--json"))
    assert said["check"]["passed"] and len(said["devices"]) == 2
    assert all(words in said["plan"] for words in ("5 nodes,", "in 3 chunks", "2 transfers"))
    greedy = both(QUIET + RUN, model, "--devices", "llvm,swift", "--policy", "greedy")
    assert "plan     plan for" in greedy and greedy.count("\ndevice   ") == 1


QUIET = "import os, sys; sys.stderr = open(os.devnull, 'w')\n"  # CPU devices are said loudly


@pytest.mark.parametrize(("options", "said"), [
    (["--policy", "greedy"], "give --devices"),
    (["--place", "first=0"], "give --devices"),
    (["--cap", "0=1M"], "give --devices"),
    (["--devices", "all", "--policy", "best"], "policy 'best'; choose from cost, greedy"),
    (["--devices", "all", "--place", "firs=0"], "no node has such a name"),
    (["--devices", "0,0"], "twice"),
    (["--devices", "0", "--cap", "0=12"], "fits nowhere: device 0"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["plan", "run"])
def test_bad_options_are_named(model, capsys, command, options, said):
    assert cli.main([command, model, *options]) == 2
    words = " ".join(capsys.readouterr().err.replace("\u2502", " ").split())
    assert said in words, words
