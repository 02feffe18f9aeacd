"""vklab bench on a device: rows of a real run, checked outputs, floors, ablations."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from vklab.apps import cli
from vklab.apps.compare.speed import clocks, record, roofs
from vklab.errors import VklabError
from vklab.runtime import loading, open_devices

KEYS = {"model", "runner", "variant", "median_us", "p05_us", "p95_us", "max_abs_error", "load_ms",
        "first_ms", "host_bytes", "floor_us"}  # fmt: skip


@pytest.mark.full
def test_a_run_has_rows_with_checked_outputs_and_floors(device_index, capsys, tmp_path):
    file = tmp_path / "run.json"
    asked = [
        "bench",
        "run",
        "chain_add_10",
        "matmul_8x16x24",
        "--device",
        str(device_index),
        *(
            word
            for name in ("vklab", "vklab-unfused", "onnxruntime-cpu", "iree", "*resident*")
            for word in ("--runner", name)
        ),
        "--rounds",
        "2",
        "--seconds",
        "0.01",
        "-o",
        str(file),
        "--json",
    ]
    assert cli.main(asked) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads(file.read_text()) and "device" in data["machine"]
    rows = {(row["model"], row["runner"]): row for row in data["rows"]}
    assert all(row.keys() >= KEYS for row in rows.values())
    assert ("matmul_8x16x24", "vklab-unfused") not in rows  # the slope of a dispatch only
    for name in ("vklab", "vklab-unfused", "onnxruntime-cpu", "vklab-resident-host"):
        row = rows["chain_add_10", name]
        assert row["status"] == "ran" and row["max_abs_error"] < 1e-6 and row["ratio"] > 0, row
        assert row["p05_us"] <= row["median_us"] <= row["p95_us"]
    product = rows["matmul_8x16x24", "vklab"]
    assert product["compares"] == "device" and product["floor_us"] > 0
    assert data["models"]["matmul_8x16x24"]["flops"] == 2 * 8 * 16 * 24
    assert [each["kernel"] for each in data["kernels"]["matmul_8x16x24"]["vklab"]]
    assert data["roofs"]["bytes_per_s"] > 1e7 and data["roofs"]["flops_per_s"]["float32"] > 1e7
    shared = rows["chain_add_10", "vklab-resident-cuda"]
    assert shared["status"] == "ran" or "CUDA" in shared["reason"] or "fd" in shared["reason"]
    absent = data["peers"].get("torch-resident-cuda")
    has_cuda = False
    with contextlib.suppress(ImportError):
        import torch

        has_cuda = torch.cuda.is_available()  # also where the rows are of a CPU device
    assert shared["status"] == "ran" or (absent is None if has_cuda else absent["install"])
    if rows["chain_add_10", "iree"]["status"] == "absent":
        assert data["peers"]["iree"]["install"] == "vklab bench peers"
    assert len(record.rows_of(data)) == len(data["rows"])


def test_the_device_is_kept_at_work(device_index):
    info = open_devices.select(device_index)
    reader, state, asked = clocks.Clocks(info), {}, []

    def warm(seconds: float) -> None:
        asked.append(seconds)
        roofs.warm(state, info.index, 0.01)

    settled = clocks.settled(reader, warm)
    assert reader.is_known or (settled["sm_mhz"] is None and len(asked) == 1)
    state["warm"][0].close()


def test_a_heater_loads_one_model_and_frees_it(device_index, monkeypatch):
    made, load = [], loading.load

    def loaded(*given, **options):
        made.append(load(*given, **options))
        return made[-1]

    monkeypatch.setattr(loading, "load", loaded)
    with roofs.heater(device_index) as warm:
        warm(0.001)
        warm(0.001)
    [session] = made
    with pytest.raises(VklabError, match="closed"):
        session.run({"image": np.zeros((1, 256, 28, 28), np.float32)})
