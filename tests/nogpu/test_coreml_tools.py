"""Conversion's choices, inspection without coremltools, and compute units against a stand-in.

No Mac was at hand: what `units` and `backend` call on macOS is a stand-in with the names and the
shapes of coremltools 9, and so these tests do not show that Core ML answers so.
"""

from __future__ import annotations

import itertools
import json
import platform
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from vklab.apps.cli import coreml
from vklab.apps.compare.backend import ModelSource, Refused
from vklab.apps.compare.coreml import backend, convert, inspect, options, units
from vklab.errors import ModelError, SetupError

PACKAGES = Path(__file__).resolve().parents[2] / "data/packages"
MINI = PACKAGES / "mini_classifier.mlpackage"
GIVEN = {"image": np.ones((1, 3, 32, 32), np.float32)}


class MLGPUComputeDevice: ...


class MLNeuralEngineComputeDevice: ...


class FakeModel:
    def __init__(self, factor: float) -> None:
        self.factor, self.calls = factor, 0

    def predict(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"logits": data["image"].sum(axis=(1, 2, 3)) * self.factor}


class FakeTools:
    """Stands in for coremltools on macOS; the Neural Engine refuses the model."""

    def __init__(self) -> None:
        self.loaded: dict[str, FakeModel] = {}

    def load(self, path: str, units: str) -> FakeModel:
        if units == "CPU_AND_NE":
            raise RuntimeError("Error compiling model: no Neural Engine")
        return self.loaded.setdefault(units, FakeModel(2.0))

    def plan(self, model: FakeModel, units: str) -> SimpleNamespace:
        operations = [
            SimpleNamespace(operator_name=kind, outputs=[SimpleNamespace(name=kind + "_0")])
            for kind in ("const", "ios16.conv", "relu")
        ]
        main = SimpleNamespace(block=SimpleNamespace(operations=operations))
        engine, gpu = MLNeuralEngineComputeDevice(), MLGPUComputeDevice()
        usage = SimpleNamespace(
            preferred_compute_device=engine, supported_compute_devices=[gpu, engine]
        )
        is_conv = "ios16.conv".__eq__
        return SimpleNamespace(
            model_structure=SimpleNamespace(program=SimpleNamespace(functions={"main": main})),
            get_compute_device_usage_for_mlprogram_operation=lambda each: (
                usage if is_conv(each.operator_name) else None
            ),
            get_estimated_cost_for_mlprogram_operation=lambda each: (
                SimpleNamespace(weight=0.75) if is_conv(each.operator_name) else None
            ),
        )


def test_a_package_is_inspected_without_coremltools():
    facts = inspect.inspect(MINI)
    assert (facts.kind, facts.version, facts.opset) == ("mlProgram", 7, "CoreML6")
    assert facts.inputs == (inspect.Feature("image", "float32", (1, 3, 32, 32)),)
    assert [(each.dtype, each.shape) for each in facts.outputs] == [("float16", (1, 10))]
    assert facts.operators == {
        "relu": 3,
        "conv": 2,
        "linear": 2,
        "avg_pool": 1,
        "cast": 1,
        "reshape": 1,
    }
    assert facts.weight_bytes < facts.size_bytes < 400_000
    assert facts.weight_bytes > 2 * 150_000  # two bytes a weight


def test_what_is_no_package_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Core ML model"):
        inspect.inspect(tmp_path / "gone.mlpackage")
    (tmp_path / "bad.mlmodel").write_bytes(b"\xff" * 40)
    with pytest.raises(ModelError, match=r"bad\.mlmodel"):
        inspect.inspect(tmp_path / "bad.mlmodel")


@pytest.mark.parametrize(("chosen", "words"), [
    (options.Options(frontend="onnx"), "unknown frontend 'onnx'; choose 'export' or 'script'"),
    (options.Options(kind="neuralnetwork"), "take float32"),
    (options.Options(kind="neuralnetwork", precision="float32", weights="int8"), "int8 weights"),
    (options.Options(shapes=((1, 4), (2, 4))), "from TorchScript only"),
    (options.Options(frontend="script", shapes=((1, (2, 4)), (2, 4))), "one shape with ranges"),
])  # fmt: skip
def test_choices_that_exclude_each_other(chosen, words):
    with pytest.raises(ModelError, match=words):
        options.check(chosen)


def test_sizes_are_parsed():
    assert options.parse_sizes("1,3, 16..64,32") == (1, 3, (16, 64), 32)
    for text, words in (
        ("1,x", "'x' in the shape '1,x'"),
        ("0", "'0'"),
        ("8..8", "empty"),
        ("4..", "neither"),
    ):
        with pytest.raises(ModelError, match=words):
            options.parse_sizes(text)


def test_the_file_has_the_ending_of_its_kind(tmp_path):
    with pytest.raises(ModelError, match=r"mlprogram ends in \.mlpackage"):
        convert.convert(None, (), tmp_path / "model.mlmodel")


def test_a_missing_coremltools_says_where_it_can_be_had(monkeypatch):
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'coremltools'", name="coremltools")

    monkeypatch.setattr(convert.importlib, "import_module", absent)
    with pytest.raises(SetupError, match="wheels for macOS and Linux x86-64"):
        convert.load_converter()


def test_units_take_turns_and_a_refused_one_has_its_reason():
    calls, ticks = FakeTools(), itertools.count(0, 1000)
    found = units.benchmark(MINI, GIVEN, 7, calls=calls, clock=lambda: next(ticks))
    assert [each.units for each in found] == list(inspect.UNITS)
    for each in found:
        if each.units == "CPU_AND_NE":
            assert each.reason == "RuntimeError: Error compiling model: no Neural Engine"
            assert each.latencies_ns == ()
        else:
            assert each.latencies_ns == (1000,) * 7 and each.median_us == 1
            assert calls.loaded[each.units].calls == units.WARM_UP + 7


def test_the_plan_names_unit_and_cost_of_each_operator():
    assert units.plan(MINI, calls=FakeTools()) == [
        units.Planned("conv", "ios16.conv_0", "NeuralEngine", ("GPU", "NeuralEngine"), 0.75),
        units.Planned("relu", "relu_0", "", (), None),
    ]


def test_a_prediction_goes_to_the_chosen_units():
    made = units.predict(MINI, GIVEN, "CPU_ONLY", FakeTools())
    assert made["logits"].tolist() == [6144]
    with pytest.raises(ModelError, match="choose among ALL, CPU_AND_GPU, CPU_AND_NE, CPU_ONLY"):
        units.predict(MINI, GIVEN, "GPU", FakeTools())


def test_elsewhere_a_row_is_absent_with_its_reason(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    answers = {each.name: each.available() for each in backend.every()}
    assert list(answers) == [
        "coreml-all",
        "coreml-cpu-and-gpu",
        "coreml-cpu-and-ne",
        "coreml-cpu-only",
    ]
    for answer in answers.values():
        assert not answer and "macOS, and this is Linux" in answer.reason and answer.install


def test_a_row_runs_the_package(monkeypatch):
    monkeypatch.setattr(units, "tools", FakeTools)
    row = backend.CoreML("CPU_ONLY")
    assert row.available()
    with pytest.raises(Refused, match="give an .mlpackage or .mlmodel, or the PyTorch source"):
        row.prepare(ModelSource("mini"))
    prepared = row.prepare(ModelSource("mini", package=MINI))
    assert prepared.run(GIVEN)["logits"].tolist() == [6144]
    assert prepared.layers(GIVEN) == {} and prepared.size_bytes > 300_000
    prepared.close()


def test_the_command_shows_the_facts_of_a_package():
    shown = CliRunner().invoke(coreml.coreml, ["inspect", str(MINI), "--json"])
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    assert facts["kind"] == "mlProgram" and facts["operators"]["conv"] == 2
    assert facts["inputs"] == [
        {"name": "image", "dtype": "float32", "shape": [1, 3, 32, 32], "flexible": []}
    ]


def test_the_command_measures_each_choice_of_units(monkeypatch):
    monkeypatch.setattr(units, "tools", FakeTools)
    arguments = ["benchmark", str(MINI), "--runs", "2", "--plan", "--json"]
    shown = CliRunner().invoke(coreml.coreml, arguments)
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert [each["units"] for each in found["timed"]] == list(inspect.UNITS)
    assert found["plan"][0]["preferred"] == "NeuralEngine"
