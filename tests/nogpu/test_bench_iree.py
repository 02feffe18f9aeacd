"""IREE's runner without IREE: what is kept of a compiled model, and which weights are in it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from vklab.apps.compare.backend import Refused
from vklab.apps.compare.models import graphs
from vklab.apps.compare.speed.runners import iree
from vklab.errors import SetupError


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Count compilations; each gives other bytes."""
    made: list[bytes] = []

    def compile_file(path, target):
        made.append(f"module {len(made)} {target}".encode())
        return made[-1]

    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(iree, "_compiled", compile_file)
    monkeypatch.setattr(iree, "_version", lambda: "3.0")
    return made


def test_a_module_is_kept_by_its_graph_without_its_weights(compiled, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    first = iree._module(path, graphs.build("mlp"), "ampere")
    assert first == (b"module 0 ampere", "")
    other = graphs.build("mlp")
    weight = max(other.graph.initializer, key=lambda each: np.prod(each.dims))
    weight.CopyFrom(numpy_helper.from_array(np.zeros(weight.dims, np.float32), weight.name))
    assert iree._module(path, other, "ampere") == (first[0], ", compiled in an earlier run")
    for changed, target in [(graphs.build("mnist12"), "ampere"), (graphs.build("mlp"), "")]:
        assert iree._module(path, changed, target)[1] == ""
    monkeypatch.setattr(iree, "_version", lambda: "3.1")
    assert iree._module(path, graphs.build("mlp"), "ampere")[0] == b"module 3 ampere"
    for file in (tmp_path / "iree").iterdir():  # a damaged one counts as absent
        file.write_bytes(file.read_bytes()[:-1])
    assert iree._module(path, graphs.build("mlp"), "ampere")[0] == b"module 4 ampere"


def test_small_initializers_are_constants_of_the_module(compiled, tmp_path):
    def chain(step: float) -> onnx.ModelProto:
        model = graphs.build("chain_add_3")
        array = np.array([step], np.float32)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "c"))
        return model

    names = {tensor.name for tensor in iree._parameters(graphs.build("mlp"))}
    assert names == {"gemm1_w", "gemm2_w", "gemm3_w"} and not iree._parameters(chain(1.0))
    path = tmp_path / "model.onnx"
    assert [iree._module(path, chain(step), "")[0] for step in (1.0, 2.0, 1.0)] == [
        b"module 0 ",
        b"module 1 ",
        b"module 0 ",
    ]


def test_without_the_compiler_a_model_that_was_never_compiled_is_refused(tmp_path, monkeypatch):
    def load(part):
        raise SetupError("IREE cannot be imported", iree.INSTALL)

    monkeypatch.setattr(iree, "load_iree", load)
    with pytest.raises(Refused, match="compiler is not installed: vklab bench peers"):
        iree._compiled(tmp_path / "model.onnx", "")
    assert "cannot be imported" in iree.Iree().available().reason
