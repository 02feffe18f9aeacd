"""A model compiled with upper bounds runs at all smaller sizes on a machine without a compiler."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab.apps import cli
from vklab.shader import compiler, stock, toolchain

BOUND = 9


def network() -> onnx.ModelProto:
    """Return products and element-wise nodes that are fused, with an open number of rows."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["h"]),
        make("Add", ["h", "b"], ["s"]),
        make("Relu", ["s"], ["r"]),
        make("MatMul", ["r", "v"], ["t"]),
        make("Softmax", ["t"], ["y"]),
    ]
    weights = {"w": random_array((16, 12)), "b": random_array((12,)), "v": random_array((12, 5))}
    return model(nodes, [value("x", ("n", 16))], ["y"], weights)


@pytest.fixture
def compiled(tmp_path, device_index, monkeypatch, capsys):
    """Return the path of the compiled model, on a machine without compiler, cache and stock."""
    onnx.save(network(), tmp_path / "model.onnx")
    line = [
        "compile",
        str(tmp_path / "model.onnx"),
        "--upper-bound",
        f"n={BOUND}",
        "--device",
        str(device_index),
    ]
    assert cli.main(line) == 0
    capsys.readouterr()
    compiler._memory.clear()
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stock, "FOLDER", tmp_path / "none")
    monkeypatch.setattr(toolchain, "_slangtorch", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VKLAB_SLANGC", raising=False)
    toolchain._find.cache_clear()
    assert toolchain.find_toolchain("slang") is None
    yield str(tmp_path / "model.vklab")
    toolchain._find.cache_clear()
    compiler._memory.clear()


def test_every_size_up_to_the_bound_runs_on_the_device(device_index, compiled):
    with vklab.load(compiled, device_index) as session:
        for size in range(BOUND, 0, -1):
            x = random_array((size, 16))
            made = session.run(x)["y"]
            assert not session.host_nodes.nodes, session.host_nodes
            assert np.allclose(made, session.reference({"x": x})["y"], rtol=1e-4, atol=1e-6)


def test_run_at_a_smaller_size_asks_for_no_compiler(capsys, device_index, compiled):
    line = ["run", compiled, "--dim", "n=3", "--repeat", "1", "--check", "--json"]
    assert cli.main([*line, "--device", str(device_index)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["host_nodes"] == [] and facts["check"]["passed"]
