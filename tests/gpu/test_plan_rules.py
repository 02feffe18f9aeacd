"""`vklab plan --rules`: the rules without which a dispatch would be another."""

from __future__ import annotations

import json

from onnx import helper

from support.graphs.small_models import DATA, model, value
from vklab import settings
from vklab.apps import cli


def test_the_rules_that_made_each_dispatch(device_index, capsys):
    words = ["plan", str(DATA / "digits_cnn.onnx"), "--dim", "batch=3", "--rules", "--json"]
    assert cli.main([*words, "--device", str(device_index)]) == 0
    rows = {row["node"]: row for row in json.loads(capsys.readouterr().out)["rules"]}
    joined = next(row for node, row in rows.items() if node.startswith("conv1 + relu1"))
    assert "fuse_epilogues" in joined["rules"]
    with settings.settings(DISABLE_PASSES="fuse_epilogues"):
        assert cli.main([*words, "--device", str(device_index)]) == 0
    without = json.loads(capsys.readouterr().out)["rules"]
    assert not any("fuse_epilogues" in row["rules"] for row in without)
    assert all(row["node"] != joined["node"] for row in without)


def test_rules_of_a_plan_that_only_a_run_tells_are_refused(device_index, tmp_path, capsys):
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=1),
    ]
    (tmp_path / "m.onnx").write_bytes(
        model(nodes, [value("x", (2, 3))], ["y"], {}).SerializeToString()
    )
    words = ["plan", str(tmp_path / "m.onnx"), "--rules", "--device", str(device_index)]
    assert cli.main(words) == 2
    assert "only a run tells the plan of this model" in capsys.readouterr().err
