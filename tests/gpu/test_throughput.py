"""vklab bench rate: every way gives the same frames, and one that fails stops no other."""

from __future__ import annotations

import json

import pytest

from support.runs.two_drivers import both
from vklab.apps import cli
from vklab.apps.compare.speed import throughput


def test_one_device_has_two_ways(capsys, monkeypatch, device_index):
    monkeypatch.setattr(throughput, "SECONDS", 0.01)
    asked = ["bench", "rate", "mlp", "--devices", str(device_index)]
    assert cli.main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["way"], row["over"]) for row in rows] == [("run", "run"), ("map", "run")]
    assert rows[0]["ratio"] == 1.0 and all(row["frames_per_s"] > 0 for row in rows)
    assert all(row["max_abs_error"] < 1e-6 and row["error"] == "" for row in rows)
    assert cli.main(asked) == 0
    assert "frames/s" in capsys.readouterr().out


@pytest.mark.slow
def test_two_devices_have_five_and_errors_are_told():
    both("""
from vklab.apps.compare.speed import throughput
from vklab.errors import OutOfMemoryError
from vklab.runtime import loading
def rows():
    return {row.way: row for row in throughput.measure_all(["mnist12"], "all", 0.02)}
found = rows()
assert list(found) == ["run", "map", "replicas map", "split run", "split map"]
for row in found.values():
    assert row.frames_per_s > 0 and row.ratio > 0 and row.max_abs_error < 1e-4, row
    assert row.devices == ((0,) if row.way in ("run", "map") else (0, 1))
load = loading.load
def failing(model, **options):
    if options.get("replicate"):
        raise OutOfMemoryError("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "none left")
    return load(model, **options)
loading.load = failing
found = rows()
assert "none left" in found.pop("replicas map").error
assert all(row.frames_per_s > 0 for row in found.values()), found
""")
