"""Bindings of models whose values cannot stay on one device: right values, and the reason."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import model, random_array, value
from support.graphs.state_models import cell, step_inputs
from support.runs.two_drivers import both
from vklab import settings
from vklab.apps import cli
from vklab.errors import ModelError, VklabError
from vklab.shader import compiler

node = helper.make_node
SHAPE = (2, 3)
A, X = value("a", SHAPE), value("x", SHAPE)


def host_model():
    """Build y = Relu(Det of a square), and a2 = a + x; Det is kept on the host."""
    nodes = [
        node("Add", ["a", "x"], ["a2"]),
        node("MatMul", ["a2", "w"], ["m"]),
        node("Det", ["m"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    return model(nodes, [X, A], ["y", "a2"], {"w": random_array((3, 2))})


def control_model():
    """Build a2 = a + x or a - x, as the sum of x tells."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["a", "x"], [f"{name}_out"])], name, [], [value(f"{name}_out", SHAPE)]
        )
        for name, op in (("then", "Add"), ("else", "Sub"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Less", ["sum", "zero"], ["is"]),
        node("If", ["is"], ["a2"], **branches),
    ]
    return model(nodes, [X, A], ["a2"], {"zero": np.float32(0)})


def needing_model():
    """Build a2 = a + x, y = x in the shape that the input `shape` says."""
    nodes = [node("Add", ["a", "x"], ["a2"]), node("Reshape", ["a2", "shape"], ["y"])]
    return model(nodes, [X, A, value("shape", (2,), TensorProto.INT64)], ["y", "a2"])


def trimmed_model():
    """Build a2 = a + x, y = NonZero of its Relu: the size of y is known after each run."""
    nodes = [
        node("Add", ["a", "x"], ["a2"]),
        node("Relu", ["a2"], ["r"]),
        node("NonZero", ["r"], ["y"]),
    ]
    return model(nodes, [X, A], ["a2", "y"])


def constant_model():
    """Build a2 = a + x, and an output that needs no run."""
    nodes = [node("Add", ["a", "x"], ["a2"]), node("Shape", ["x"], ["y"])]
    return model(nodes, [X, A], ["y", "a2"])


@pytest.fixture(autouse=True)
def det_on_host(monkeypatch):
    monkeypatch.setenv("VKLAB_HOST", "Det")


MODELS = {
    "host": (host_model, "nodes run on the host"),
    "control": (control_model, "control flow runs on the host"),
    "needs": (needing_model, "the plan depends on the values of shape"),
    "trims": (trimmed_model, "the size of y is known after each run only"),
    "constant": (constant_model, "an output needs no run"),
}


@pytest.mark.parametrize("name", ["host", "control"])
@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_binding_plans_open_sizes_before_the_first_run(device_index, name):
    made = MODELS[name][0]()
    for info in made.graph.input:
        info.type.tensor_type.shape.dim[0].dim_param = "rows"
    fed = {"x": random_array(SHAPE), "a": random_array(SHAPE, 1)}
    with vklab.load(made, device_index) as session, session.bind(fed) as bound:
        outputs = bound.run()
        for key, array in session.run(fed).items():
            np.testing.assert_array_equal(outputs[key].numpy(), array, strict=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_values_are_those_of_runs_without_a_binding(device_index, name):
    build, words = MODELS[name]
    with vklab.load(build(), device_index) as session:
        more = {"shape": np.int64([3, 2])} if name == "needs" else {}
        a = random_array(SHAPE, 99)
        with session.bind({"x": random_array(SHAPE), "a": a, **more}, state={"a": "a2"}) as bound:
            assert bound.reason == words and words in repr(bound)
            with pytest.raises(VklabError, match="a2 has no value before the first run"):
                bound.outputs["a2"].numpy()
            for number in range(4):
                x = random_array(SHAPE, number)
                if name == "needs" and number == 2:
                    more = {"shape": np.int64([1, 6])}
                expected = session.run({"x": x, "a": a, **more})
                outputs = bound.run({"x": x, **more})
                for key, array in expected.items():
                    np.testing.assert_array_equal(outputs[key].numpy(), array, strict=True)
                a = expected["a2"]
                assert np.from_dlpack(bound.inputs["a"]).tolist() == a.tolist()
            neg = model([node("Neg", ["a2"], ["z"])], [value("a2", SHAPE)], ["z"])
            with (
                vklab.load(neg, device_index) as other,
                pytest.raises(
                    ModelError, match=f"a tensor in host memory, because {words}; pass tensor.numpy"
                ),
            ):
                other.bind(bound.outputs["a2"])
        with pytest.raises(VklabError, match="this binding is closed"):
            bound.inputs["a"].numpy()


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_model_on_the_host_reads_tensors_of_other_bindings(device_index):
    double = model([node("Add", ["i", "i"], ["x"])], [value("i", SHAPE)], ["x"])
    with (
        vklab.load(double, device_index) as one,
        vklab.load(host_model(), device_index) as two,
        one.bind(random_array(SHAPE)) as first,
    ):
        first.run()
        a = random_array(SHAPE, 1)
        with two.bind({"x": first.outputs["x"], "a": a}, in_place=["a"]) as second:
            for number in range(3):
                i = random_array(SHAPE, number)
                first.run({"i": i})
                expected = two.run({"x": i + i, "a": a})
                np.testing.assert_array_equal(second.run()["y"].numpy(), expected["y"])
            assert second.inputs["a"].reason == "nodes run on the host"


@pytest.mark.filterwarnings("ignore::vklab.HostWarning")
def test_a_state_of_another_shape_is_an_error_where_only_a_run_tells(device_index):
    nodes = [node("NonZero", ["a"], ["n"]), node("Cast", ["n"], ["a2"], to=1)]
    made = model(nodes, [A], ["a2"])
    with (
        vklab.load(made, device_index) as session,
        session.bind(np.ones(SHAPE, np.float32), state={"a": "a2"}) as bound,
    ):
        words = r"output a2: float32\[2, 6\] cannot be the next run's a: float32\[2, 3\]; dtype"
        for _ in range(2):
            with pytest.raises(ModelError, match=words):
                bound.run()
        assert (bound.inputs["a"].numpy() == 1).all()


def test_a_sequence_is_refused(device_index):
    nodes = [node("SequenceAt", ["s", "i"], ["y"])]
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    made = model(nodes, [sequence], ["y"], {"i": np.int64(0)})
    words = "input s is none: use session.run"
    with vklab.load(made, device_index) as session, pytest.raises(ModelError, match=words):
        session.bind({"s": [np.ones(2, np.float32)]})


# ----------------------------------------------------- what stays on the device all the same


def require_equal_steps(session, rows):
    h = np.zeros((rows, 8), np.float32)
    with session.bind({"x": random_array((rows, 8))}, state={"h": "h2"}) as bound:
        for number in range(3):
            x = random_array((rows, 8), number)
            expected = session.run({"x": x, "h": h})
            h = expected["h2"]
            np.testing.assert_array_equal(bound.run({"x": x})["h2"].numpy(), h)
        return bound.reason


def test_upper_bounds_and_several_shapes(device):
    with vklab.load(cell("rows"), device, upper_bounds={"rows": 7}) as session:
        for rows in (3, 7, 1):
            assert require_equal_steps(session, rows) == ""
        with session.bind({"x": random_array((3, 8))}, state={"h": "h2"}) as small:
            session.run({"x": random_array((7, 8)), "h": random_array((7, 8))})
            assert small.run()["h2"].shape == (3, 8)
        with pytest.raises(ModelError, match="above its upper bound 7"):
            session.bind({"x": random_array((8, 8))}, state={"h": "h2"})


def test_half_precision(device_index):
    with vklab.load(cell(), device_index, dtype="float16") as session:
        assert require_equal_steps(session, 3) == ""


def test_dtypes_that_the_device_stores_otherwise(device_index):
    nodes = [node("Add", ["h", "x"], ["h2"]), node("Not", ["f"], ["f2"])]
    half, flag = TensorProto.FLOAT16, TensorProto.BOOL
    inputs = [value("x", SHAPE, half), value("h", SHAPE, half), value("f", (5,), flag)]
    with (
        settings.settings(DISABLE_NARROW=True),
        vklab.load(model(nodes, inputs, ["h2", "f2"]), device_index) as session,
    ):
        x = np.float16([[1, 2, 3], [4, 5, 6]])
        f = np.array([0, 1, 0, 0, 1], bool)
        with session.bind({"x": x, "f": f}, state={"h": "h2", "f": "f2"}, in_place=["x"]) as bound:
            assert not bound.reason and " stores float16 as " in bound.inputs["x"].reason
            bound.run()
            bound.run({"x": 2 * x})
            assert not bound.outputs["h2"].is_view
            np.testing.assert_array_equal(bound.outputs["h2"].numpy(), 3 * x, strict=True)
            np.testing.assert_array_equal(bound.outputs["f2"].numpy(), f, strict=True)
            bound.inputs["h"][0, 0] = 100
            assert bound.run()["h2"].numpy()[0].tolist() == [102, 10, 15]


def test_empty_tensors(device_index):
    with (
        vklab.load(cell("rows"), device_index) as session,
        session.bind(step_inputs("cell", 0)["x"][:0], state={"h": "h2"}) as bound,
    ):
        for _ in range(3):
            outputs = bound.run()
        assert outputs["h2"].numpy().shape == (0, 8) and outputs["y"].numpy() == 0


def test_a_compiled_model_is_bound_without_a_compiler(device_index, tmp_path, monkeypatch):
    source, target = tmp_path / "cell.onnx", tmp_path / "cell.vklab"
    onnx.save(cell(), source)
    line = ["compile", str(source), "-o", str(target), "--device", str(device_index)]
    assert cli.main(line) == 0
    compiler._memory.clear()
    monkeypatch.setenv("VKLAB_SLANGC", "/nowhere")
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    with vklab.load(target, device_index) as session:
        assert require_equal_steps(session, 3) == ""
        assert not session.plan_reason


def test_replicas_and_pieces_of_two_drivers():
    said = both("""
import numpy as np, vklab
from support.graphs.small_models import random_array
from support.runs.split_models import BOTH
from support.graphs.state_models import cell, step_inputs
def steps(session):
    h = np.zeros((3, 8), np.float32)
    with session.bind(step_inputs("cell", 0), state={"h": "h2"}) as bound:
        for number in range(3):
            expected = session.run({**step_inputs("cell", number), "h": h})
            h = expected["h2"]
            assert (bound.run(step_inputs("cell", number))["h2"].numpy() == h).all()
        print(bound.reason)
        if not bound.reason:
            with vklab.load(cell(), BOTH[1]) as other:
                try:
                    other.bind({"x": bound.outputs["h2"]}, state={"h": "h2"})
                except vklab.ModelError as error:
                    print("this session is on" in str(error))
with vklab.load(cell(), devices=BOTH, replicate=True) as session:
    steps(session)
with vklab.load(cell(), devices=BOTH, place={"MatMul": BOTH[0], "Tanh": BOTH[1]}) as session:
    steps(session)
""")
    assert said.splitlines() == ["", "True", "the model is split over several devices"]
