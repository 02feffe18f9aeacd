"""session.trace: the device's spans lie on the host's clock where they belong."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from onnx import helper

import vklab
from support.checks.trace_checks import by_name, require_order
from support.graphs.small_models import DATA, model, random_array, relu, value
from support.runs.two_drivers import both
from vklab import settings
from vklab.apps import cli
from vklab.base.trace import HOST
from vklab.errors import ModelError, VklabError
from vklab.runtime import open_devices
from vklab.vulkan import api, query

DIGITS = DATA / "digits_cnn.onnx"


@pytest.fixture(scope="module")
def images():
    return np.load(DATA / "digits.npz")["images"][:8]


def test_a_run_of_one_submission(device, images):
    opened = open_devices.open_device(device)
    with vklab.load(DIGITS, device) as session:
        want = session.run(images)["logits"]
        before = api.live_handles()
        trace = session.trace({"image": images}, repeats=2)
        assert api.live_handles() == before
        np.testing.assert_array_equal(session.run(images)["logits"], want)
        plan = session.plan
    name = next(name for name in trace.devices if name != HOST)
    assert trace.devices == (HOST, name) and opened.info.name in name
    require_order(trace, 100_000)
    for run in range(2):
        found = by_name(trace, run)
        chunk, wait = found["chunk 0"], found["wait 0"]
        assert found["submit 0"].start_ns <= chunk.start_ns + 100_000
        assert chunk.end_ns <= wait.end_ns + 100_000
        steps = [span for span in found.values() if span.kind == "dispatch"]
        assert [span.node for span in steps] == [n for c in plan.chunks for n in c.nodes]
        assert [span.bytes for span in steps] == [d.size_bytes for d in plan.dispatches]
        assert steps[0].start_ns == chunk.start_ns and steps[-1].end_ns == chunk.end_ns
        assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(steps))
        assert found["copy in 0"].bytes == images.nbytes
        assert found["copy out 0"].bytes == want.nbytes
    names = [span.name for span in trace.critical_path()]
    assert names == ["copy in 0", "submit 0", "chunk 0", "copy out 0"] * 2
    assert 0 < trace.busy_ns(name) <= trace.duration_ns
    calibrated = query.calibrate(opened.device) is not None
    assert ("calibrated" in " ".join(trace.machine.values())) == calibrated


def test_the_whole_is_recorded_as_a_run_records_it(device_index, images):
    with vklab.load(DIGITS, device_index) as session:
        trace = session.trace(images, steps=False)
    assert [span.kind for span in trace.spans if span.device != HOST] == ["chunk"]
    assert trace.machine["dispatches"] == "recorded as in a run"


def test_parts_on_the_host_have_their_own_spans(device, images):
    with settings.settings(HOST="MaxPool"), vklab.load(DIGITS, device) as session:
        want = session.run(images)["logits"]
        trace = session.trace(images, repeats=2)
        np.testing.assert_array_equal(session.run(images)["logits"], want)
    found = by_name(trace, 1)
    assert found["host 1"].node == "maxpool1" and found["host 1"].after == ((1, "copy out 0"),)
    assert {"chunk 0", "chunk 2", "chunk 4", "host 3"} <= found.keys()
    require_order(trace, 100_000)
    assert trace.critical_path()[0].run == 0 and trace.critical_path()[-1].name == "copy out 4"


def test_parts_that_share_memory_under_upper_bounds(device_index):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    proto = model(nodes, [value("x", ("n", 64))], ["y"], {"w": np.eye(64, dtype=np.float32)})
    x = random_array((5, 64))
    with (
        settings.settings(HOST="Neg"),
        vklab.load(proto, device_index, upper_bounds={"n": 9}) as session,
    ):
        trace = session.trace(x, repeats=2)
        np.testing.assert_allclose(session.run(x)["y"], -np.maximum(x, 0), atol=1e-6)
    kinds = {span.kind for span in trace.spans if span.device != HOST}
    assert kinds == {"chunk", "dispatch"} and max(s.run for s in trace.spans) == 1


def test_what_cannot_be_traced(device_index):
    with vklab.load(relu((2, 3)), device_index) as session:
        with pytest.raises(ValueError, match="repeats=0"):
            session.trace(random_array((2, 3)), repeats=0)
        with pytest.raises(ModelError):
            session.trace(random_array((3, 3)))
        session.trace(random_array((2, 3)))
    with pytest.raises(VklabError, match="closed"):
        session.trace(random_array((2, 3)))


def test_a_driver_without_calibration_is_tied_by_its_runs():
    said = both("""
import numpy as np, vklab
from support.graphs.small_models import DATA
images = np.load(DATA / "digits.npz")["images"][:8]
for name in ("swiftshader", "llvm"):
    with vklab.load(DATA / "digits_cnn.onnx", name) as session:
        trace = session.trace(images, repeats=3)
        print(name, *trace.machine.values())
        chunks = [span for span in trace.spans if span.kind == "chunk"]
        outer = {(s.run, s.kind, s.name[:6]): s for s in trace.spans}
        for chunk in chunks:
            assert outer[chunk.run, "host", "submit"].start_ns <= chunk.start_ns + 50_000
            assert chunk.end_ns <= outer[chunk.run, "wait", "wait 0"].end_ns + 50_000
""")
    line = next(line for line in said.splitlines() if line.startswith("swiftshader"))
    assert "from before and after a run" in line


def test_two_devices_are_on_one_clock():
    both("""
import itertools
import numpy as np, vklab
from support.graphs.small_models import DATA
from vklab.base.trace import HOST
images = np.load(DATA / "digits.npz")["images"][:16]
model = DATA / "digits_cnn.onnx"
with vklab.load(model) as one:
    want = one.run(images)["logits"]
for steps in (True, False):
    with vklab.load(model, devices="all", place={"conv2": "Swift", "conv1": "llvm"}) as session:
        trace = session.trace(images, repeats=3, steps=steps)
        assert abs(session.run(images)["logits"] - want).max() < 1e-4
        plan = session.plan
    host, *devices = trace.devices
    assert host == HOST and len(devices) == 2, trace.devices
    chunks = [span for span in trace.spans if span.kind == "chunk"]
    assert len(chunks) == 3 * len(plan.chunks) and {c.device for c in chunks} == set(devices)
    moves = [s for s in trace.spans if s.kind == "transfer" and " to " in s.name]
    assert len(moves) == 3 * sum(t.source is not None for t in plan.transfers)
    assert all(s.bytes > 0 for s in moves), moves
    for target, sources in trace.predecessors().items():
        for source in sources:
            before, after = trace.spans[source], trace.spans[target]
            moment = before.start_ns if before.name.startswith("submit") else before.end_ns
            assert moment <= after.start_ns + 200_000, (before, after)
    path = trace.critical_path()
    assert path[0].name.startswith("copy in") and path[-1].name.startswith("copy out")
    assert any(a.device != b.device for a, b in itertools.combinations(path, 2))
    dispatched = [s for s in trace.spans if s.kind == "dispatch" and s.run == 0]
    assert len(dispatched) >= (len(plan.dispatches) if steps else 0)
""")


def test_the_command(capsys, tmp_path, device_index):
    chrome, picture = tmp_path / "trace.json", tmp_path / "trace.svg"
    assert (
        cli.main(
            [
                "trace",
                str(DIGITS),
                "--device",
                str(device_index),
                "--dim",
                "batch=2",
                "--repeat",
                "2",
                "--json",
                str(chrome),
                "--png",
                str(picture),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "critical path" in shown and "copy out 0 (host)" in shown and str(chrome) in shown
    events = json.loads(chrome.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["cat"] == "chunk" for event in events) == 2
    assert "digits_cnn.onnx on" in picture.read_text()
    assert cli.main(["trace", str(DIGITS), "--device", str(device_index), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["duration_ns"] > 0 and facts["critical_path"] and facts["files"] == []
    assert (
        cli.main(
            [
                "trace",
                str(DIGITS),
                "--devices",
                str(device_index),
                "--frames",
                "3",
                "--in-flight",
                "2",
                "--json",
                str(chrome),
            ]
        )
        == 0
    )
    events = json.loads(chrome.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["cat"] == "chunk" for event in events) == 3


def test_frames_in_flight(device, images):
    if not open_devices.open_device(device).info.is_cpu:  # it works while the host copies
        images = np.tile(images, (64, 1, 1, 1))
    with vklab.load(DIGITS, device) as session:
        want = session.run(images)["logits"]
        before = api.live_handles()
        trace = session.trace(images, frames=6, in_flight=2)
        assert api.live_handles() == before
        np.testing.assert_array_equal(session.run(images)["logits"], want)
        whole = session.trace(images, frames=3, steps=False)
        for wrong in ({"frames": -1}, {"in_flight": 2}, {"frames": 2, "in_flight": -1}):
            with pytest.raises(ValueError, match="at least one"):
                session.trace(images, **wrong)
    name = next(name for name in trace.devices if name != HOST)
    require_order(trace, 100_000)
    frames = [by_name(trace, number) for number in range(6)]
    for number, found in enumerate(frames):
        assert {"copy in 0", "submit 0", "chunk 0", "wait 0", "copy out 0"} <= found.keys()
        assert found["copy out 0"].queue.startswith("device") and not frames[0]["submit 0"].queue
        # Frames are home in order, and the one after the next has the place of this one.
        later = frames[number + 1] if number < 5 else None
        assert later is None or found["copy out 0"].end_ns <= later["copy out 0"].end_ns
    # Two are in flight, though a busy machine may stop the thread between two submissions.
    assert any(
        later["submit 0"].start_ns < frame["copy out 0"].end_ns
        for frame, later in itertools.pairwise(frames)
    )
    for first, third in zip(frames, frames[2:], strict=False):
        assert first["copy out 0"].end_ns <= third["copy in 0"].start_ns
    path = trace.critical_path()
    runs = [span.run for span in path]
    # A frame waits for the one before it on the device, or for the place of the one before that.
    assert runs[0] <= 1 and runs[-1] == 5
    assert {after - before for before, after in zip(runs, runs[1:], strict=False)} <= {0, 1, 2}
    assert 0 < trace.overlap_ns() <= trace.busy_ns(HOST) and trace.idle_ns(name) >= 0
    assert {span.kind for span in whole.spans if span.device != HOST} == {"chunk"}
    events = trace.to_chrome()["traceEvents"]
    assert {event["args"]["run"] for event in events if event["ph"] == "X"} == set(range(6))
    assert "number of its run or frame" in trace.svg()
    assert 'aria-label="Gantt chart: ' in trace._repr_html_()


@pytest.mark.full
def test_frames_of_replicas_and_of_a_split_model():
    both("""
import numpy as np, vklab
from support.graphs.small_models import DATA
from vklab.base.trace import HOST
images = np.load(DATA / "digits.npz")["images"][:4]
model = DATA / "digits_cnn.onnx"
for options in ({"replicate": True}, {"place": {"conv2": "Swift", "conv1": "llvm"}}):
    with vklab.load(model, devices="all", **options) as session:
        trace = session.trace(images, frames=8, in_flight=4)
        assert session.run(images)["logits"].shape == (4, 10)
    chunks = [span for span in trace.spans if span.kind == "chunk"]
    assert {span.run for span in chunks} == set(range(8)), options
    assert {span.device for span in chunks} == set(trace.devices) - {HOST}, trace.devices
    assert len(trace.devices) == 3
""")
