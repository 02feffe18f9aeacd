"""PyTorch as a backend: factories, names, layers, export and reasons."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from vklab.apps.compare import forms, parity, reference
from vklab.apps.compare.backend import ModelSource, Refused
from vklab.apps.compare.onnxruntime import backend as onnxruntime
from vklab.apps.compare.torch import backend as backends
from vklab.errors import ModelError

pytestmark = pytest.mark.slow

FACTORY = "support.models.torch_factories:two_outputs"


def test_without_the_source_torch_refuses():
    with pytest.raises(Refused, match="give MODULE:FUNCTION"):
        backends.Torch("cpu").prepare(ModelSource("net", onnx=None))


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_a_device_that_torch_does_not_see_is_a_reason(kind):
    answer = backends.Torch(kind).available()
    if not answer:
        assert f"sees no {kind} device" in answer.reason
        assert answer.install.startswith("pip install torch")


def test_torch_that_is_not_installed_is_a_reason(monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    assert backends.Torch("cpu").available().reason == "torch is not installed"


@pytest.mark.parametrize(("factory", "words"), [
    ("support.models.torch_factories:no_module", "must return a pair"),
    ("support.models.torch_factories:gone", "there is no factory"),
    ("no_such_module:make", "there is no factory"),
    ("support.models.torch_factories", "write MODULE:FUNCTION"),
])  # fmt: skip
def test_a_wrong_factory_is_refused(factory, words):
    with pytest.raises(ModelError, match=words):
        backends.load_modules().make(factory)


@pytest.mark.parametrize("compiled", [False, True])
def test_outputs_and_layers(compiled):
    prepared = backends.Torch("cpu", compiled).prepare(ModelSource("two", FACTORY))
    values = {"values": np.ones((1, 8), np.float32)}
    made, seen = prepared.run(values), prepared.layers(values)
    assert list(made) == ["output", "output_1"]
    assert made["output_1"].sum() == pytest.approx(1)
    assert {"linear", "relu", "linear_1", "softmax"} <= seen.keys()
    np.testing.assert_allclose(seen["output_1"], made["output_1"], rtol=1e-5)
    assert prepared.size_bytes == 4 * (8 * 16 + 16 + 16 * 4 + 4)


def test_the_exported_opset_is_checked_and_the_batch_can_be_open(tmp_path):
    path = tmp_path / "two.onnx"
    facts = backends.load_modules().export(FACTORY, path, 17, True)
    assert facts["asked"] == 17
    model = onnx.load(path)
    assert facts["opset"] == next(item.version for item in model.opset_import if not item.domain)
    assert facts["bytes"] >= path.stat().st_size
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    assert facts["outputs"] == ["output", "output_1"]


def test_a_report_of_a_factory_has_the_row_export_and_a_crossover():
    options = parity.Options(layers=True, repeats=2, rounds=1, slice_s=0.02, batches=(1, 4))
    [ort] = [each for each in onnxruntime.every() if each.name == "onnxruntime-cpu-float32"]
    rows = [backends.Torch("cpu"), ort, reference.Reference()]
    made = parity.run(forms.of_text(FACTORY), rows, None, options)
    assert made.oracle == "torch module in float64"
    assert made.passed
    by_name = {each.row.backend: each for each in made.rows}
    assert [*by_name] == ["export", *(row.name for row in rows)]
    assert by_name["export"].row.max_abs_error < 1e-6
    assert all({*each.batches} == {1, 4} for each in made.rows[1:])
    layers = {layer.name: layer for layer in by_name["torch-cpu-eager-float32"].layers}
    assert layers["linear"].cumulative is not None
    assert layers["linear"].local is not None
    assert by_name[ort.name].layers[0].local is not None
