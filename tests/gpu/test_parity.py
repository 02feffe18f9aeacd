"""vklab as a backend of the parity report, and the command `vklab parity`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vklab.apps import cli
from vklab.apps.compare import registry, vulkan
from vklab.apps.compare.backend import ModelSource, Refused
from vklab.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "data/mini_classifier.onnx")
IMAGE = {"image": np.random.default_rng(0).random((1, 3, 32, 32), np.float32)}


def report(capsys, *arguments: str, code: int = 0) -> dict:
    """Run the command; return its JSON."""
    assert cli.main(["parity", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_vklab_counts_its_nodes_and_shows_layers(device_index):
    prepared = vulkan.Vulkan(device_index, "device").prepare(ModelSource("m", onnx=Path(MODEL)))
    assert prepared.nodes == {}
    made = prepared.run(IMAGE)
    assert prepared.nodes == {"vklab": 9}
    layers = prepared.layers(IMAGE)
    assert {"conv2d", "relu", "logits"} <= layers.keys()
    np.testing.assert_allclose(layers["logits"], made["logits"], atol=1e-5)
    prepared.close()


def test_nodes_on_the_host_are_counted_as_such(device_index, monkeypatch):
    source = ModelSource("m", onnx=Path(MODEL))
    monkeypatch.setenv("VKLAB_HOST", "AveragePool")
    prepared = vulkan.Vulkan(device_index, "device").prepare(source)
    prepared.run(IMAGE)
    assert prepared.nodes == {"vklab": 8, vulkan.HOST: 1}
    prepared.close()
    monkeypatch.setenv("VKLAB_HOST", "*")
    prepared = vulkan.Vulkan(device_index, "device").prepare(source)
    with pytest.raises(Refused, match="all 9 nodes ran on the host"):
        prepared.run(IMAGE)
    prepared.close()


def test_without_a_device_the_row_has_the_reason(monkeypatch):
    def broken():
        raise SetupError("no Vulkan loader", "apt install libvulkan1")

    monkeypatch.setattr(vulkan.open_devices, "devices", broken)
    rows = vulkan.every()
    assert [row.name for row in rows] == ["vklab-float32", "vklab-float16"]
    assert all("no Vulkan loader" in row.available().reason for row in rows)


@pytest.mark.slow
def test_the_report_of_this_machine(capsys, tmp_path):
    page, saved = tmp_path / "page.html", tmp_path / "saved.npz"
    found = report(
        capsys,
        MODEL,
        "--layers",
        "--rounds",
        "1",
        "--html",
        str(page),
        "--save-outputs",
        str(saved),
    )["parity"]
    rows = {row["backend"]: row for row in found["rows"]}
    names = [each.name for each in registry.listed()]
    assert [*rows] == names
    ran = [name for name, row in rows.items() if row["status"] == "ran"]
    assert {
        "vklab-0-float32",
        "vklab-0-float16",
        "onnx-reference-float32",
        "onnxruntime-cpu-float32",
        "onnxruntime-cpu-float16",
        "onnxruntime-cpu-int8",
    } <= {*ran}
    assert all(rows[name]["passed"] and rows[name]["latency_us"] for name in ran)
    assert "give MODULE:FUNCTION" in rows["torch-cpu-eager-float32"]["reason"]
    for row in rows.values():
        if row["status"] == "absent":
            assert row["reason"] and "pip install" in row["install"]
            assert f"--backends {row['backend']}" in row["install"]
    assert "<svg" in page.read_text("utf-8")
    again = report(
        capsys, MODEL, "--backends", "reference", "--rounds", "0", "--load-outputs", str(saved)
    )["parity"]["rows"]
    kept = [row for row in again if row["status"] == "recorded"]
    assert [row["backend"] for row in kept] == ran
    assert all(row["max_abs_error"] == rows[row["backend"]]["max_abs_error"] for row in kept)


@pytest.mark.slow
def test_a_model_that_is_wrong_for_the_oracle_fails_the_command(capsys, tmp_path):
    """Recorded outputs with a planted error of 10 %: exit code 1, and the row says by how much."""
    from vklab.apps.compare.report import recorded

    saved = tmp_path / "saved.npz"
    chosen = ("--backends", "onnxruntime-cpu-float32", "--rounds", "0")
    report(capsys, MODEL, *chosen, "--save-outputs", str(saved))
    [good] = recorded.read(saved)
    good.outputs["logits"][:] *= 1.1
    recorded.write(saved, [good])
    rows = report(capsys, MODEL, *chosen, "--load-outputs", str(saved), code=1)["parity"]["rows"]
    assert [row["passed"] for row in rows] == [True, False]
    assert "times the tolerance" in rows[1]["reason"]


@pytest.mark.parametrize(("arguments", "words"), [
    (("gone.onnx",), "there is no model file gone.onnx"),
    (("gone.mlpackage",), "there is no package gone.mlpackage"),
    (("what is this",), "is no model: give an .onnx file"),
    ((MODEL, "--batches", "1,x"), "write sizes with commas"),
    ((MODEL, "--backends", "metal"), "no backend matches metal"),
    ((MODEL, "--inputs", "gone.npz", "--backends", "reference"), "no input file gone.npz"),
])  # fmt: skip
def test_wrong_arguments_are_explained(capsys, arguments, words):
    assert cli.main(["parity", *arguments]) in (1, 2)
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert words in shown
