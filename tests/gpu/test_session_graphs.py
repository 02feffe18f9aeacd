"""Graphs of unusual form, and every switch, each on a whole model."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import DATA, model, random_array, relu, value
from support.runs.overlay import write_function
from vklab import settings
from vklab.errors import CheckError, OutOfMemoryError

SHAPE = (3, 5)
X, W = random_array(SHAPE), random_array(SHAPE, 1)
NODE = helper.make_node

# name -> (nodes, outputs)
GRAPHS = {
    "input is output": ([], ["x"]),
    "initializer is output": ([], ["w"]),
    "input and initializer and more": ([NODE("Add", ["x", "w"], ["y"])], ["x", "w", "y"]),
    "view of an input": ([NODE("Flatten", ["x"], ["y"])], ["y"]),
    "two views of an input": (
        [NODE("Flatten", ["x"], ["y"]), NODE("Identity", ["x"], ["z"])], ["y", "z", "x"],
    ),
    "view of an initializer": ([NODE("Flatten", ["w"], ["y"])], ["y"]),
    "view of a result": (
        [NODE("Relu", ["x"], ["a"]), NODE("Identity", ["a"], ["y"])], ["y", "a"],
    ),
    "view in the middle": (
        [NODE("Relu", ["x"], ["a"]), NODE("Identity", ["a"], ["b"]), NODE("Neg", ["b"], ["y"])],
        ["y"],
    ),
    "output read again": (
        [NODE("Relu", ["x"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Mul", ["a", "b"], ["c"])],
        ["a", "c"],
    ),
    "the same twice": ([NODE("Relu", ["x"], ["y"]), NODE("Relu", ["x"], ["z"])], ["y", "z"]),
    "unused input": ([NODE("Relu", ["w"], ["y"])], ["y"]),
    "dead branch": ([NODE("Relu", ["x"], ["y"]), NODE("Neg", ["x"], ["q"])], ["y"]),
    "constant result": ([NODE("Transpose", ["w"], ["y"])], ["y"]),
    "diamond": (
        [NODE("Relu", ["x"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Sigmoid", ["a"], ["c"]),
         NODE("Add", ["b", "c"], ["d"]), NODE("Add", ["d", "a"], ["y"])], ["y"],
    ),
    "long chain": (
        [NODE("Add" if i % 2 else "Sub", [f"v{i}" if i else "x", "w"], [f"v{i + 1}"])
         for i in range(40)], ["v40"],
    ),
}  # fmt: skip
SWITCHES = ["", *(name for name in settings.SETTINGS if name.startswith("DISABLE_"))]
ON = {name: settings.SETTINGS[name].default for name in SWITCHES if name}
OFF = {name: "all" if value == "" else True for name, value in ON.items()}


def build(name):
    nodes, outputs = GRAPHS[name]
    open_outputs = [value(o, None, TensorProto.FLOAT) for o in outputs]
    return model(nodes, [value("x", SHAPE)], open_outputs, {"w": W})


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
@pytest.mark.parametrize("name", GRAPHS)
def test_graph(device, name, staged):
    with settings.settings(DISABLE_DIRECT_IO=staged), vklab.load(build(name), device) as session:
        for x in (X, X * 2, X):
            comparison = session.check({"x": x})
            assert comparison.passed, comparison


def test_a_result_without_elements_beside_one_with(device):
    nodes = [NODE("Relu", ["e"], ["y"]), NODE("Relu", ["x"], ["z"])]
    proto = model(nodes, [value("e", (0, 3)), value("x", (2,))], ["y", "z"])
    with vklab.load(proto, device) as session:
        outputs = session.run(np.zeros((0, 3), np.float32), np.float32([-1, 2]))
        assert outputs["y"].shape == (0, 3) and outputs["z"].tolist() == [0, 2]


def test_a_model_that_does_nothing_at_all(device):
    with vklab.load(relu((0, 3)), device) as session:
        empty = np.zeros((0, 3), np.float32)
        assert session.run(empty)["y"].shape == (0, 3)
        assert session.profile(empty).rows == ()
        assert session.plan.summary()["dispatches"] == 0


def test_an_output_that_is_listed_twice_is_given_once(device):
    proto = model([NODE("Relu", ["x"], ["y"])], [value("x", (2,))], ["y", "y"])
    with vklab.load(proto, device) as session:
        assert {k: v.tolist() for k, v in session.run(np.float32([-1, 2])).items()} == {"y": [0, 2]}


def test_a_model_without_inputs(device):
    proto = model([NODE("Relu", ["w"], ["y"])], [], ["y"], {"w": W})
    with vklab.load(proto, device) as session:
        for outputs in (session.run(), session.run({})):
            np.testing.assert_array_equal(outputs["y"], np.maximum(W, 0))


# ------------------------------------------------------------------------------------- switches


@pytest.fixture(scope="module")
def digits():
    """Return some images of the example model, and what ONNX Runtime says of them."""
    images = np.load(DATA / "digits.npz")["images"][:5]
    with vklab.load(DATA / "digits_cnn.onnx") as session:
        return images, session.reference({"image": images})["logits"]


@pytest.mark.parametrize("name", SWITCHES)
def test_every_optimisation_may_be_off(device, name, digits):
    images, expected = digits
    with (
        settings.settings(**({name: OFF[name]} if name else {})),
        vklab.load(DATA / "digits_cnn.onnx", device) as session,
    ):
        for _ in range(3):
            got = session.run(images)["logits"]
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        session.profile(images, repeats=1)
        session.profile(images, repeats=1)
        np.testing.assert_allclose(session.run(images)["logits"], expected, rtol=1e-4, atol=1e-4)


def test_all_optimisations_may_be_off(device, digits):
    images, expected = digits
    with (
        settings.settings(**OFF),
        vklab.load(DATA / "digits_cnn.onnx", device) as session,
    ):
        session.run(images)
        got = session.run(images)["logits"]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SWITCHES[1:])
def test_switches_may_change_while_a_session_is_open(device, name, digits):
    images, expected = digits
    with vklab.load(DATA / "digits_cnn.onnx", device) as session:
        for value in (ON[name], OFF[name], ON[name]):
            with settings.settings(**{name: value}):
                got = session.run(images)["logits"]
                session.profile(images, repeats=1)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_debug_prints_the_plan_and_a_line_for_each_dispatch(device_index, digits, capfd):
    images, _ = digits
    with vklab.load(DATA / "digits_cnn.onnx", device_index) as session:
        session.run(images)
        assert capfd.readouterr() == ("", "")
        with settings.settings(DEBUG=2):
            session.run(images)
        lines = capfd.readouterr().err.splitlines()
        nodes = [name for chunk in session.plan.chunks for name in chunk.nodes]
        assert session.device.name in lines[0] and len(lines) == 1 + len(nodes)
        for node, line in zip(nodes, lines[1:], strict=True):
            assert line.startswith(node) and re.search(r"\d+x\d+x\d+|copy", line)
    with settings.settings(DEBUG=1), vklab.load(relu(), device_index):
        assert capfd.readouterr().err.startswith("plan for ")


def test_dump_writes_plan_and_spirv(device_index, tmp_path):
    with settings.settings(DUMP=str(tmp_path / "dump")):
        for _ in range(2):  # the second time everything comes from memory
            for path in (tmp_path / "dump").glob("*"):
                path.unlink()
            with vklab.load(relu((2, 3)), device_index):
                pass
            (spirv,) = (tmp_path / "dump").glob("*.spv")
            (plan,) = (tmp_path / "dump").glob("*.txt")
            assert spirv.read_bytes()[:4] == b"\3\2#\7"
            assert "elementwise: relu" in plan.read_text()


@pytest.mark.full
def test_check_raises_where_a_kernel_is_wrong(device_index, tmp_path):
    write_function(tmp_path, "relu", "a + Real(1)")
    with (
        settings.settings(SHADERS=str(tmp_path), CHECK="outputs"),
        vklab.load(relu((2, 3)), device_index) as session,
        pytest.raises(CheckError, match=r"DIFFERS.*\n  y\[0, \d\]: "),
    ):
        session.run(np.ones((2, 3), np.float32))


def test_a_memory_limit_that_holds_no_model(device_index):
    words = "asked for .* bytes"
    with settings.settings(MEMORY_LIMIT=1e-9), pytest.raises(OutOfMemoryError, match=words):
        vklab.load(relu((1 << 24,)), device_index)


def test_profile_times_every_step(device, digits):
    images, _ = digits
    with vklab.load(DATA / "digits_cnn.onnx", device) as session:
        profile = session.profile(images, repeats=3)
        steps = [step for chunk in session.plan.chunks for step in chunk.steps]
        assert len(profile.rows) == len(steps) and profile.repeats == 3
        assert all(0 <= row.time_ns < 10e9 for row in profile.rows) and profile.total_ns > 0
        assert any(row.gigaflops_per_second > 0 for row in profile.rows)
        assert len(profile.summary()["rows"]) == len(steps)
        assert profile._repr_html_().count("<tr>") == len(steps) + 1
        with pytest.raises(ValueError, match="repeats=0"):
            session.profile(images, repeats=0)
