"""Sizes of the package, and the way to every file that a run executes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from support.graphs.small_models import DATA, model, value
from support.models import exported_models
from support.rules import architecture_page, reading_path, static_walk
from support.runs import child
from vklab.runtime import open_devices

# Logical lines. A budget is met by removing and moving. What is over its budget has its size of
# today beside it, which may shrink only.
BUDGETS = {"core": (23_000, 25_544), "package": (38_500, 42_497),
           "default run": (7_800, 7_794), "reading path": (5_500, 5_680)}  # fmt: skip
SLACK = 60  # a size of today that is larger than the package by more than this is lowered


@functools.cache  # several tests ask for the same run
def executed(make: Callable[[], tuple[bytes, dict[str, np.ndarray]]], device: int) -> dict:
    """Return the files that a load and a run of a model execute in a process of its own."""
    proto, inputs = make()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.onnx").write_bytes(proto)
        np.savez(f"{folder}/inputs.npz", **inputs)
        done = subprocess.run(
            [sys.executable, reading_path.__file__, f"{folder}/model.onnx", f"{folder}/inputs.npz"],
            capture_output=True,
            text=True,
            timeout=child.LIMIT_S,
            env={**os.environ, "VKLAB_DEVICE": str(device), "VKLAB_CACHE": f"{folder}/cache"},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)["files"]


def require_cpu(device):
    """Skip on a GPU, whose rules a run of the digits executes, too."""
    info = open_devices.select(device)
    if not info.is_cpu:
        pytest.skip(f"{info.name} is a GPU: the sizes are those of a run on a CPU device")


def digits():
    return (DATA / "digits_cnn.onnx").read_bytes(), {
        "image": np.load(DATA / "digits.npz")["images"][:50]
    }


def transformer():
    proto = exported_models.load("bert")
    return proto.SerializeToString(), exported_models.inputs_of(proto, {"batch": 2, "sequence": 6})


def with_a_host_node():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Unique", ["a"], ["u"], axis=0),
        helper.make_node("Neg", ["u"], ["y"]),
    ]
    made = model(nodes, [value("x", (2, 3))], ["y"], {})
    return made.SerializeToString(), {"x": np.ones((2, 3), np.float32)}


@pytest.mark.parametrize("make", [digits, transformer, with_a_host_node])
def test_imports_lead_to_every_file_that_a_run_executes(make, device_index):
    reached = static_walk.reached("vklab.runtime.loading")
    files = executed(make, device_index)
    assert len(files) > 100
    assert make is not with_a_host_node or "runtime/host.py" in files
    assert not set(files) - reached - {"__init__.py"}


def test_sizes_keep_their_budgets(device_index, capsys):
    require_cpu(device_index)
    files = executed(digits, device_index)
    found = {
        "core": reading_path.core_size(),
        "package": reading_path.size_of("."),
        "default run": reading_path.total(files),
        "reading path": reading_path.total(reading_path.on_path(files)),
    }
    with capsys.disabled():
        print(f"\nlogical lines: {found}")
    for name, (budget, today) in BUDGETS.items():
        assert found[name] <= max(budget, today), f"{name}: {found[name]} logical lines"
        assert found[name] >= today - SLACK or found[name] <= budget, f"{name}: lower its number"


def test_the_page_names_the_files_of_the_reading_path(device_index):
    require_cpu(device_index)
    files = executed(digits, device_index)
    read = reading_path.on_path(files)
    page = architecture_page.PAGE.read_text("utf-8")
    order = architecture_page.reading_order(page)
    unnamed = [
        name
        for name in read
        if name.split("/")[-2:-1] != ["draw"]
        and name.rpartition("/")[2] != "__init__.py"
        and f"`{name.rpartition('/')[2]}`" not in order
    ]
    assert not unnamed, f"the reading order does not name {unnamed}"
    for counted in (read, files):
        lines = reading_path.total(counted)
        assert any(abs(lines - figure) <= lines // 50 for figure in figures(page)), (
            f"{lines} logical lines: run python tests/support/rules/architecture_page.py"
        )


def figures(page: str) -> list[int]:
    """Return the numbers in the table of the page."""
    cells = architecture_page.block(page, "lines").replace("|", " ").split()
    return [int(cell.replace(",", "")) for cell in cells if cell.replace(",", "").isdigit()]
