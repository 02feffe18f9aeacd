"""Core ML packages in the parity report: executed by vklab, without coremltools or macOS."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from vklab.apps import cli
from vklab.apps.compare import forms, parity, vulkan
from vklab.apps.compare.backend import ModelSource, Refused
from vklab.apps.compare.coreml import on_vulkan
from vklab.base import worker

coremltools = pytest.importorskip("coremltools", reason="it writes the packages of these tests")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Return a small network as packages in float32 and float16, by precision."""
    import torch
    from torch import nn

    torch.manual_seed(5)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    ).eval()
    program = torch.export.export(net, (torch.rand(1, 3, 4, 4),)).run_decompositions({})
    made = {}
    for precision in ("float32", "float16"):
        made[precision] = tmp_path_factory.mktemp("packages") / f"{precision}.mlpackage"
        coremltools.convert(
            program,
            convert_to="mlprogram",
            compute_precision=getattr(coremltools.precision, precision.upper()),
            minimum_deployment_target=coremltools.target.iOS16,
        ).save(str(made[precision]))
    return made


def test_packages_run_and_their_rows_keep_their_precision(packages, capsys):
    for precision, package in packages.items():
        assert (
            cli.main(
                [
                    "parity",
                    str(package),
                    "--layers",
                    "--rounds",
                    "1",
                    "--json",
                    "--backends",
                    "coreml-by-vklab-0",
                ]
            )
            == 0
        )
        found = json.loads(capsys.readouterr().out)
        assert "weights that the package stores" in found["details"]["notes"][0]
        for row, more in zip(found["parity"]["rows"], found["details"]["rows"], strict=True):
            if row["backend"].endswith("-network"):
                assert row["status"] == "refused"
                assert "is an ML Program; this row is of a NeuralNetwork" in row["reason"]
                continue
            if row["dtypes"]["arithmetic"] != precision:
                assert row["status"] == "refused"
                assert f"computes in {precision}" in row["reason"]
                continue
            assert row["passed"] and row["nodes"]["vklab"] >= 4
            assert 0 < row["max_abs_error"] < {"float32": 1e-6, "float16": 1e-2}[precision]
            assert any("Neural Engine is not modelled" in note for note in more["notes"])
            assert any(layer["local"] is not None for layer in more["layers"])


def test_fusion_is_off_unless_the_row_says_so(packages, device_index):
    source = ModelSource("net", package=packages["float16"])
    image = {"x": np.random.default_rng(1).random((1, 3, 4, 4), np.float32)}
    made = []
    for fused in (False, True):
        row = vulkan.Vulkan(device_index, "device")
        loaded = on_vulkan.CoreMLProgram(row, "float16", fused).prepare(source)
        [name] = [value.name for value in loaded._graph.inputs]
        loaded.run({name: image["x"]})
        made.append(loaded._session.step_count)
        loaded.close()
    assert made[1] < made[0]


def test_a_model_without_a_package_is_refused(device_index):
    row = on_vulkan.CoreMLProgram(vulkan.Vulkan(device_index, "device"), "float32")
    with pytest.raises(Refused, match="needs a package"):
        row.prepare(ModelSource("net", onnx=Path("net.onnx")))


def damaged(package, folder, damage):
    """Return a damaged copy of a package."""
    broken = folder / "broken.mlpackage"
    shutil.copytree(package, broken)
    if damage == "manifest":
        (broken / "Manifest.json").write_text("{}")
    else:
        [weights] = broken.rglob("weight.bin")
        weights.write_bytes(weights.read_bytes()[:100])
    return broken


@pytest.mark.parametrize("damage", ["weights", "manifest"])
def test_a_damaged_package_is_a_sentence(packages, tmp_path, damage):
    broken = damaged(packages["float16"], tmp_path, damage)
    with pytest.raises(worker.Failure) as caught:
        parity.run(forms.of_text(str(broken)), [], None, parity.Options())
    assert caught.value.status == "refused"
    assert "broken.mlpackage" in caught.value.reason or "weight" in caught.value.reason


def rows_of(capsys, *arguments):
    """Run the command, which must find no failing row; return its rows by backend."""
    assert cli.main(["parity", *arguments, "--rounds", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["parity"]["rows"]
    return {row["backend"]: row for row in found}


@pytest.mark.parametrize("damage", ["weights", "manifest"])
def test_a_damaged_package_beside_a_factory_is_its_row(packages, tmp_path, capsys, damage):
    broken = damaged(packages["float16"], tmp_path, damage)
    found = rows_of(
        capsys,
        "vklab.apps.compare.models:mini_classifier",
        "--package",
        str(broken),
        "--backends",
        "coreml-by-vklab-0",
        "--backends",
        "torch-cpu-eager",
        "--backends",
        "vklab-0-float32",
    )
    for name, row in found.items():
        if name.startswith("coreml"):
            assert (row["status"], row["passed"]) == ("refused", None)
            assert (
                "broken.mlpackage" in row["reason"]
                or "weight" in row["reason"]
                or ("this row is of" in row["reason"])
            )
        else:
            assert (row["status"], row["passed"]) == ("ran", True)
    assert {"torch-cpu-eager-float32", "vklab-0-float32"} < {*found}


def test_a_factory_is_converted_for_the_rows_of_core_ml(capsys):
    found = rows_of(
        capsys, "vklab.apps.compare.models:mini_classifier", "--backends", "coreml-by-vklab-0"
    )
    errors = {
        name.removeprefix("coreml-by-vklab-0-"): row["max_abs_error"]
        for name, row in found.items()
        if row["passed"]
    }
    assert errors.keys() >= {"float32", "float16", "float16-fused", "network"}
    assert errors["float32"] < 1e-4 and errors["network"] < 1e-4
    assert 1e-4 < errors["float16"] < 5e-2


def test_a_refused_conversion_is_the_rows_reason_and_the_rest_stands(capsys):
    found = rows_of(
        capsys,
        "support.models.torch_factories:masked",
        "--backends",
        "coreml-by-vklab-0",
        "--backends",
        "torch-cpu-eager",
    )
    for name in ("float32", "float16", "network"):
        row = found[f"coreml-by-vklab-0-{name}"]
        assert row["status"] == "refused"
        assert "there is no Core ML package: coremltools refuses the model" in row["reason"]
    assert found["torch-cpu-eager-float32"]["passed"]


def test_layers_of_a_converted_package_have_local_errors(capsys):
    assert (
        cli.main(
            [
                "parity",
                "vklab.apps.compare.models:mini_classifier",
                "--layers",
                "--rounds",
                "0",
                "--json",
                "--backends",
                "coreml-by-vklab-0-float16",
                "--backends",
                "coreml-by-vklab-0-network",
            ]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["details"]["rows"]
    for row in rows[1:]:
        assert all(layer["local"] is not None for layer in row["layers"])
        assert not any("no local errors" in note for note in row["notes"])
        found = {layer["name"]: layer for layer in row["layers"]}
        for name in ("conv2d", "conv2d_1", "linear"):
            assert 0 < found[name]["share"] < 1 and found[name]["arithmetic"] > 0
            assert (found[name]["weights"] > 0) == (not row["backend"].endswith("network"))
