"""Measured speeds of devices: plausible, kept, and what placement weighs."""

from __future__ import annotations

import dataclasses
import json

import pytest

import vklab
from support.runs.two_drivers import both
from vklab import settings
from vklab.apps import cli
from vklab.base import store
from vklab.errors import SetupError
from vklab.plan.place import costs
from vklab.runtime import open_devices
from vklab.runtime.many import speeds
from vklab.runtime.observe import calibration
from vklab.vulkan import api

pytestmark = pytest.mark.full


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Forget what this machine has measured before; kernels stay compiled."""
    folder = store.folder

    def moved(kind: str):
        return tmp_path / kind if kind == "speeds" and folder(kind) else folder(kind)

    monkeypatch.setattr(store, "folder", moved)
    return tmp_path


def test_speeds_are_measured_kept_and_dropped_with_the_driver(fresh):
    info = open_devices.select()
    assert speeds.kept(info) is None and speeds.all_kept([info]) == {}
    found = vklab.measure()
    assert found.is_measured and found.source == "measured"
    numbers = [getattr(found, name) for name in numbers_of(found)]
    assert len(numbers) == 6 and all(1e-4 < number < 1e9 for number in numbers), found
    assert found.thin_flops_per_ns < found.flops_per_ns * 3  # noise apart
    assert speeds.kept(info) == found and speeds.all_kept([info]) == {0: found}
    other = dataclasses.replace(info, driver_version=info.driver_version + 1)
    assert speeds.kept(other) is None  # another driver is another device
    (file,) = (fresh / "speeds").iterdir()
    assert file.name.startswith(info.uuid) and vklab.__version__ in file.name
    file.write_bytes(b"no speeds")
    assert speeds.kept(info) is None
    store.write(file, json.dumps({"bytes_per_ns": 1.0}).encode())  # of a version with less
    assert speeds.kept(info) is None
    store.write(file, json.dumps(dict(zip(numbers_of(found), numbers, strict=True))).encode())
    assert speeds.kept(info) == found
    for damage in (0, -1.0, "x", "1", None, [], float("nan"), float("inf"), 10**400):
        damaged = dict(zip(numbers_of(found), [damage, *numbers[1:]], strict=True))
        store.write(file, json.dumps(damaged).encode())
        assert speeds.kept(info) is None, damage
    for damaged in (b"[]", b"3", b"null", b"\xff\xfe", b"{}"):
        store.write(file, damaged)
        assert speeds.kept(info) is None, damaged
    store.write(file, json.dumps(dict(zip(numbers_of(found), numbers, strict=True))).encode())
    for switch in ("DISABLE_CACHE", "DISABLE_MEASURED"):
        with settings.settings(**{switch: True}):
            assert speeds.kept(info) is None


def numbers_of(found: costs.DeviceCosts) -> list[str]:
    """Return the names of what is measured."""
    return [name for name in vars(found) if name != "is_measured"]


def test_nothing_is_left_of_a_measurement(fresh):
    vklab.measure()
    open_devices.close_all()
    assert api.live_handles() == {}


def test_a_measurement_of_a_benchmark_is_not_kept(fresh):
    assert calibration.measure(keep=False).is_measured
    assert speeds.kept(open_devices.open_device().info) is None


def test_a_device_without_timestamps_is_refused(fresh, monkeypatch):
    opened = open_devices.open_device()
    queue = opened.device.compute_queue
    family = dataclasses.replace(queue.family, timestamp_valid_bits=0)
    monkeypatch.setattr(queue, "family", family)
    with pytest.raises(SetupError, match="has no timestamps"):
        vklab.measure()
    assert speeds.kept(opened.info) is None


@pytest.mark.full
def test_the_command_line_measures_the_others_where_one_has_no_clock(fresh, capsys, monkeypatch):
    info = open_devices.select()
    others = (dataclasses.replace(info, index=7, name="Clockless"), info)
    measure = calibration.measure

    def measured(index):
        if index == 7:
            raise SetupError("Clockless has no timestamps")
        return measure(index)

    monkeypatch.setattr(open_devices, "devices", lambda: open_devices.Devices(others))
    monkeypatch.setattr(calibration, "measure", measured)
    monkeypatch.setattr(open_devices, "select", lambda wanted=None: info)
    assert cli.main(["devices", "--measure"]) == 0
    said = capsys.readouterr()
    assert "Clockless has no timestamps" in said.err
    assert speeds.kept(info) is not None and "measured" in said.out


def test_the_command_line_measures_and_shows(fresh, capsys):
    index = str(open_devices.select().index)
    assert cli.main(["devices", index, "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    guess = costs.estimate(open_devices.select())
    assert device["speed"] == dataclasses.asdict(guess) and not guess.is_measured
    assert cli.main(["devices", index, "--measure"]) == 0
    said = capsys.readouterr()
    assert "measured" in said.out and "measuring" in said.err
    assert cli.main(["devices", index, "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert device["speed"]["is_measured"]


@pytest.mark.slow
def test_sessions_and_plans_weigh_what_was_measured(tmp_path):
    said = both(
        """
import sys
from pathlib import Path
import numpy as np
from onnx import helper
from support.graphs.small_models import model, value
from support.runs.split_models import BOTH, LAVAPIPE
import vklab
from vklab.base import store
folder = store.folder
store.folder = lambda kind: Path(sys.argv[1]) if kind == "speeds" else folder(kind)
nodes = [helper.make_node("Softmax", [f"n{k - 1}" if k else "x"], [f"n{k}"], f"n{k}")
         for k in range(6)]
source = model(nodes, [value("x", (8, 8))], [value("n5", (8, 8))])
x = np.zeros((8, 8), np.float32)
for measured in ((), (LAVAPIPE,), BOTH):
    for index in measured:
        vklab.measure(index)
    with vklab.load(source, devices=BOTH) as session:
        session.run(x)
        placed = session.plan.placement
        print("|".join(load.speed for load in placed.loads), "|", placed)
""",
        tmp_path,
    ).splitlines()
    assert said[0].startswith("guessed|guessed") and "predicted from guessed speeds" in said[0]
    assert said[1].startswith("measured|guessed") and "guessed and measured speeds" in said[1]
    assert said[2].startswith("measured|measured") and "from measured speeds" in said[2]
