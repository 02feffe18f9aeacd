"""Core ML packages in the parity report: executed by vklab, without coremltools or macOS."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vklab import cli
from vklab.backends import coreml_vulkan, forms, parity, process, vulkan
from vklab.backends.backend import ModelSource, Refused

coremltools = pytest.importorskip("coremltools", reason="it writes the packages of these tests")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Return a small network as packages in float32 and float16, by precision."""
    import torch
    from torch import nn

    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(),
                        nn.Linear(8 * 16, 5)).eval()  # fmt: skip
    program = torch.export.export(net, (torch.rand(1, 3, 4, 4),)).run_decompositions({})
    made = {}
    for precision in ("float32", "float16"):
        made[precision] = tmp_path_factory.mktemp("packages") / f"{precision}.mlpackage"
        coremltools.convert(
            program, convert_to="mlprogram",
            compute_precision=getattr(coremltools.precision, precision.upper()),
            minimum_deployment_target=coremltools.target.iOS16,
        ).save(str(made[precision]))  # fmt: skip
    return made


def test_packages_run_and_their_rows_keep_their_precision(packages, capsys):
    for precision, package in packages.items():
        assert cli.main(["parity", str(package), "--layers", "--rounds", "1", "--json",
                         "--backends", "coreml-by-vklab-0"]) == 0  # fmt: skip
        found = json.loads(capsys.readouterr().out)
        assert "weights that the package stores" in found["details"]["notes"][0]
        for row, more in zip(found["parity"]["rows"], found["details"]["rows"], strict=True):
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
        loaded = coreml_vulkan.CoreMLProgram(row, "float16", fused).prepare(source)
        [name] = [value.name for value in loaded._graph.inputs]
        loaded.run({name: image["x"]})
        made.append(loaded._session.step_count)
        loaded.close()
    assert made[1] < made[0]


def test_a_model_without_a_package_is_refused(device_index):
    row = coreml_vulkan.CoreMLProgram(vulkan.Vulkan(device_index, "device"), "float32")
    with pytest.raises(Refused, match="needs a package"):
        row.prepare(ModelSource("net", onnx=Path("net.onnx")))


@pytest.mark.parametrize("damage", ["weights", "manifest"])
def test_a_damaged_package_is_a_sentence(packages, tmp_path, damage):
    import shutil

    broken = tmp_path / "broken.mlpackage"
    shutil.copytree(packages["float16"], broken)
    if damage == "manifest":
        (broken / "Manifest.json").write_text("{}")
    else:
        [weights] = broken.rglob("weight.bin")
        weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(process.Failure) as caught:
        parity.run(forms.of_text(str(broken)), [], None, parity.Options())
    assert caught.value.status == "refused"
    assert "broken.mlpackage" in caught.value.reason or "weight" in caught.value.reason
