"""Names of models: `vklab parity`, `vklab bench` and `vklab tune` take those of one catalogue."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from vklab.apps import cli
from vklab.apps.compare import forms, models, parity, reference
from vklab.apps.compare.backend import ModelSource
from vklab.apps.compare.models import catalogue, graphs
from vklab.apps.compare.speed import cases
from vklab.errors import ModelError


def test_every_name_is_a_source_of_parity_and_known_to_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {*graphs.MODELS, *models.MODELS, *catalogue.REAL} <= {*catalogue.names()}
    catalogue.require_known(catalogue.names())
    for name in (*catalogue.names(), "chain_add_7", "matmul_2x3x5"):
        made = forms.of_text(name)
        assert made.name == name and bool(made.factory) == (name in models.MODELS) != made.named
    assert forms.of_text("encoder").factory == models.factory("encoder")
    with pytest.raises(ModelError, match="or a name among chain_add_1, .*text_classifier"):
        forms.of_text("x")


def test_a_graph_by_its_name_has_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [reference.Reference()]
    made = parity.run(forms.of_text("mlp"), rows, None, parity.Options(repeats=1, rounds=0))
    assert made.passed and made.source.name == "mlp" and [*made.inputs] == ["image"]
    assert made.oracle == "ONNX graph widened to float64"
    assert cli.main(["parity", "no_model"]) == 2
    assert "'no_model' is no model" in capsys.readouterr().err


def test_a_file_goes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlp").write_bytes(b"")
    assert forms.of_text("mlp") == ModelSource("mlp", onnx=tmp_path / "mlp")


@pytest.mark.parametrize("name", ["encoder", "text_classifier"])
def test_a_factory_is_a_case_of_the_benchmark(tmp_path, name):
    pytest.importorskip("onnxscript")
    case = cases.make(name, tmp_path, 300)
    model = onnx.load(case.onnx)
    assert [value.name for value in model.graph.input] == [models.INPUTS[name]]
    assert [value.name for value in model.graph.output] == ["logits"]
    assert case.module == tmp_path / "module.pt" and case.flops > 0 and not case.on_device
    module, inputs = models.example(name)
    with np.load(case.inputs) as stored:
        assert {key: stored[key].tolist() for key in stored.files} == {
            key: array.tolist() for key, array in inputs.items()
        }
    expected = module(*map(models.load_networks().torch.from_numpy, inputs.values()))
    with np.load(case.expected) as stored:
        np.testing.assert_allclose(stored["logits"], expected.detach().numpy(), atol=1e-4)
