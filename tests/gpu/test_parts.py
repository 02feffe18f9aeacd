"""Parts: what runs where and why, host parts, control flow, values and sizes known late."""

from __future__ import annotations

import itertools
import unittest

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.small_models import DATA, model, random_array, value
from support.runs.overlay import write_function
from vklab import settings
from vklab.apps import onnx_backend
from vklab.errors import CheckError, ModelError, UnsupportedOperatorError

DIGITS = DATA / "digits_cnn.onnx"
INT64 = TensorProto.INT64


@pytest.fixture
def image():
    return {"image": np.load(DATA / "digits.npz")["images"][:2]}


def kinds(session):
    """Return where the parts run, in order; neighbours of one kind are one stay."""
    return [kind for kind, _ in itertools.groupby(part.kind for part in session.plan.chunks)]


def test_a_model_that_vulkan_can_do_is_one_plan(device, image):
    with vklab.load(DIGITS, device) as session:
        session.run(image)
        assert session.host_reasons == {} and session.plan.summary()["host_nodes"] == []


@pytest.mark.parametrize(("switch", "expected"), [
    ({"HOST": "MaxPool"}, ["vulkan", "host", "vulkan", "host", "vulkan"]),
    ({"HOST": "maxpool1, gemm*"}, ["vulkan", "host", "vulkan", "host"]),
    ({"HOST": "*"}, ["host"]),
    ({"ONLY": "Conv, Relu"}, ["vulkan", "host", "vulkan", "host"]),
])  # fmt: skip
def test_nodes_are_kept_on_the_host_by_name_or_operator(device, image, switch, expected):
    with settings.settings(**switch), vklab.load(DIGITS, device) as session:
        assert session.check(image).passed
        assert kinds(session) == expected
        summary = session.plan.summary()
        hosted = {node["name"] for node in summary["host_nodes"]}
        assert hosted and all(node["reason"] for node in summary["host_nodes"])
        assert {n for n, place in summary["placement"].items() if place == "host"} <= hosted
        assert session.check(image, nodes=True).passed
        session.profile(image, repeats=1)
        session.time(image, repeats=2)


def test_without_fallback_the_reason_is_an_error(device_index, image):
    with (
        settings.settings(HOST="MaxPool", FALLBACK=False),
        pytest.raises(UnsupportedOperatorError, match="maxpool1.*VKLAB_HOST=MaxPool"),
        vklab.load(DIGITS, device_index) as session,
    ):
        session.run(image)


def test_little_work_between_host_nodes_stays_there(device):
    names = [f"v{number}" for number in range(7)]
    nodes = [
        helper.make_node("Det" if number % 2 else "Identity", ["v0"], [names[number + 1]])
        if not number
        else helper.make_node("Relu" if number % 2 else "Neg", [names[number]], [names[number + 1]])
        for number in range(6)
    ]
    proto = model(nodes, [value("v0", (3, 3))], ["v6"])
    with settings.settings(HOST="Neg"), vklab.load(proto, device) as session:
        x = random_array((3, 3))
        np.testing.assert_allclose(
            session.run(x)["v6"], np.maximum(-np.maximum(-np.maximum(x, 0), 0), 0), atol=1e-6
        )
        assert kinds(session) == ["vulkan", "host", "vulkan"]
        assert "too little work" in " ".join(session.host_reasons.values())


@pytest.mark.full
@pytest.mark.parametrize("count", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_hundreds_of_parts_follow_each_other_and_close(device_index, count):
    nodes = [
        helper.make_node(
            "Neg" if number % 2 else "MatMul",
            [f"v{number}"] if number % 2 else [f"v{number}", "w"],
            [f"v{number + 1}"],
        )
        for number in range(2 * count)
    ]
    w = np.eye(64, dtype=np.float32)
    proto = model(nodes, [value("v0", (64, 64))], [f"v{2 * count}"], {"w": w})
    with settings.settings(HOST="Neg"), vklab.load(proto, device_index) as session:
        x = random_array((64, 64))
        np.testing.assert_allclose(session.run(x)[f"v{2 * count}"], x, atol=1e-5)
        assert len(session.plan.chunks) == 2 * count


# --------------------------------------------------------------------------- values known late


def test_a_shape_that_is_fed_decides_the_plan_and_is_kept_by_its_value(device):
    node = helper.make_node("Reshape", ["x", "shape"], ["r"])
    proto = model(
        [node, helper.make_node("Relu", ["r"], ["y"])],
        [value("x", (2, 6)), value("shape", (2,), INT64)],
        ["y"],
    )
    with vklab.load(proto, device) as session:
        x = random_array((2, 6))
        for shape in ((3, 4), (4, 3), (-1, 2), (3, 4)):
            result = session.run({"x": x, "shape": np.int64(shape)})["y"]
            np.testing.assert_array_equal(result, np.maximum(x, 0).reshape(shape))
        assert len(session.roots[0].entries) == 3 and session.host_reasons == {}


def test_sizes_that_depend_on_data_end_a_part(device):
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"]),
        helper.make_node("GatherND", ["x", "t"], ["y"]),
    ]
    proto = model(nodes, [value("x", (3, 5))], ["y", "n"], opset=13)
    with vklab.load(proto, device) as session:
        for seed in range(3):
            x = random_array((3, 5), seed) * (random_array((3, 5), seed + 9) > 0)
            found = session.run(x)
            np.testing.assert_array_equal(found["y"], x[np.nonzero(x)])
            np.testing.assert_array_equal(found["n"], np.array(np.nonzero(x)))
        assert session.host_reasons == {} and len(session.plan.chunks) == 2


# ------------------------------------------------------------------------------- control flow


def branches():
    """Return If(c, relu(x) + k, -x), whose branches capture x."""
    then = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Add", ["t", "k"], ["p"])],
        "then",
        [],
        [value("p", (3,))],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["q"])], "else", [], [value("q", (3,))]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return model(
        [node],
        [value("x", (3,)), value("c", (), TensorProto.BOOL)],
        ["y"],
        {"k": np.float32([1, 2, 3])},
    )


def test_if_takes_the_branch_that_its_condition_says(device):
    x = np.float32([1, -2, 3])
    with vklab.load(branches(), device) as session:
        for _ in range(2):
            assert session.run(x, np.array(True))["y"].tolist() == [2, 2, 6]
            assert session.run(x, np.array(False))["y"].tolist() == [-1, 2, -3]
        assert session.host_reasons == {} and kinds(session) == ["control"]


def test_an_if_whose_condition_is_known_leaves_one_branch(device):
    proto = branches()
    del proto.graph.input[1]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    with vklab.load(proto, device) as session:
        assert session.run(np.float32([1, -2, 3]))["y"].tolist() == [2, 2, 6]
        assert [node.op_type for node in session.plan.chunks[0].graph.nodes] == ["Relu", "Add"]


def counting_loop() -> onnx.ModelProto:
    """Return a model that multiplies x by w, n times over, and collects a row each time."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "w"], ["b"]),
            helper.make_node("Identity", ["b"], ["row"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [value("i", (), INT64), value("go", (), TensorProto.BOOL), value("a", (2,))],
        [value("on", (), TensorProto.BOOL), value("b", (2,)), value("row", (2,))],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "rows"], body=body)
    return model(
        [node], [value("n", (), INT64), value("x", (2,))], ["y", "rows"], {"w": np.float32([2, 3])}
    )


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loop_carries_values_and_collects_rows(device, count):
    with vklab.load(counting_loop(), device) as session:
        found = session.run({"n": np.array(count), "x": np.float32([1, 1])})
        assert found["y"].tolist() == [2.0**count, 3.0**count]
        assert len(found["rows"]) == count and session.host_reasons == {}


def test_a_loop_that_does_not_end_is_an_error(device_index):
    x = np.float32([1, 1])
    with settings.settings(LOOP_LIMIT=7), vklab.load(counting_loop(), device_index) as session:
        assert len(session.run(np.array(7), x)["rows"]) == 7
        words = r"'Loop_0' \(Loop\) has run 7 times, .* \(trip count: 9223372036854775807\)"
        with pytest.raises(ModelError, match=words):
            session.run(np.array(2**63 - 1), x)


def body_of_rows(op_type: str, control: bool, **attributes: object) -> onnx.GraphProto:
    """Return a body that adds v to its state a, and collects what an operator makes of a."""
    nodes = [
        helper.make_node("Add", ["a", "v"], ["b"]),
        helper.make_node(op_type, ["a"], ["row"], **attributes),
    ]
    if not control:
        return helper.make_graph(
            nodes,
            "body",
            [value("a", None), value("v", None)],
            [value("b", None), onnx.ValueInfoProto(name="row")],
        )
    nodes.append(helper.make_node("Identity", ["go"], ["on"]))
    given = [value("i", (), INT64), value("go", (), TensorProto.BOOL), value("a", None)]
    return helper.make_graph(
        nodes,
        "body",
        given,
        [value("on", (), TensorProto.BOOL), value("b", None), onnx.ValueInfoProto(name="row")],
    )


COLLECTED = [("Cast", {"to": INT64}, (2, 3), "int64"), ("Transpose", {}, (3, 2), "float32"),
             ("NonZero", {}, (2, 6), "int64")]  # fmt: skip


@pytest.mark.parametrize(("op_type", "attributes", "shape", "dtype"), COLLECTED)
def test_a_loop_without_iterations_collects_no_rows(device, op_type, attributes, shape, dtype):
    node = helper.make_node(
        "Loop", ["n", "", "x"], ["y", "rows"], body=body_of_rows(op_type, True, **attributes)
    )
    proto = model(
        [node], [value("n", (), INT64), value("x", (2, 3))], ["y", "rows"], {"v": np.float32([1])}
    )
    x = random_array((2, 3))
    with vklab.load(proto, device) as session:
        for count in (0, 2, 0):
            found = session.run({"n": np.array(count), "x": x})
            assert found["rows"].shape == (count, *shape) and found["rows"].dtype == dtype
        np.testing.assert_array_equal(found["y"], x)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("op_type", "attributes", "shape", "dtype"), COLLECTED)
def test_a_scan_of_no_rows_collects_none(device, op_type, attributes, shape, dtype, axis):
    node = helper.make_node(
        "Scan",
        ["x", "items"],
        ["y", "rows"],
        num_scan_inputs=1,
        scan_output_axes=[axis],
        body=body_of_rows(op_type, False, **attributes),
    )
    proto = model([node], [value("x", (2, 3)), value("items", ("n", 3))], ["y", "rows"])
    x = random_array((2, 3))
    with vklab.load(proto, device) as session:
        found = session.run({"x": x, "items": np.zeros((0, 3), np.float32)})
    expected = np.moveaxis(np.zeros((0, *shape), dtype), 0, axis)
    assert found["rows"].shape == expected.shape and found["rows"].dtype == dtype
    np.testing.assert_array_equal(found["y"], x)


def test_a_condition_that_is_no_single_bool_is_named(device_index):
    proto = branches()
    proto.graph.input[1].CopyFrom(value("c", (2,), TensorProto.BOOL))
    with (
        vklab.load(proto, device_index) as session,
        pytest.raises(ModelError, match="If_0.*a condition is one bool"),
    ):
        session.run(np.zeros(3, np.float32), np.array([True, False]))


# --------------------------------------------------------------------------------- check mode


def test_check_mode_names_the_first_node_that_differs(device_index, image, tmp_path):
    folder = write_function(tmp_path, "relu", "a * Real(0.5)")
    with settings.settings(SHADERS=str(folder)), vklab.load(DIGITS, device_index) as session:
        found = session.check(image, nodes=True)
        assert not found.passed and found.node.startswith("relu1:") and found.nodes == 2
        with settings.settings(CHECK="nodes"), pytest.raises(CheckError, match="relu1"):
            session.run(image)


# ------------------------------------------------------------------------- the standard backend


def test_the_backend_interface(device_index):
    node = helper.make_node("Add", ["a", "b"], ["c"])
    a, b = random_array((2, 3)), random_array((2, 3), 1)
    place = f"VULKAN:{device_index}"
    np.testing.assert_array_equal(onnx_backend.run_node(node, [a, b], place)[0], a + b)
    assert onnx_backend.supports_device("CPU") and not onnx_backend.supports_device("VULKAN:99")
    proto = onnx.load(DIGITS)
    assert onnx_backend.is_compatible(proto)
    rep = onnx_backend.prepare(proto, place)
    with rep.session:
        images = np.load(DATA / "digits.npz")["images"][:1]
        (logits,) = rep.run([images])
        assert logits.shape == (1, 10)


@pytest.mark.slow  # ONNX computes its whole suite anew
def test_onnx_own_runner_takes_the_backend():
    from onnx.backend.test import BackendTest

    suite = BackendTest(onnx_backend.VulkanBackend, __name__)
    suite.include("^test_(relu|add|softmax_example)_cpu$")
    result = unittest.TestResult()
    for group in suite.test_cases.values():
        unittest.defaultTestLoader.loadTestsFromTestCase(group).run(result)
    assert result.testsRun >= 3 and not result.failures and not result.errors


@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (0, 0), (2, 3)])
def test_a_scan_of_opset_8_keeps_its_dimensions_for_an_empty_batch(batch, steps, device):
    nodes = [
        helper.make_node("Add", ["s", "item"], ["next"]),
        helper.make_node("Concat", ["next", "next"], ["row"], axis=0),
    ]
    inside = [value("s", (2,)), value("item", (2,))]
    body = helper.make_graph(nodes, "body", inside, [value("next", (2,)), value("row", (4,))])
    scan = helper.make_node("Scan", ["", "x", "items"], ["y", "rows"], num_scan_inputs=1, body=body)
    given = [value("x", ("batch", 2)), value("items", ("batch", "steps", 2))]
    fed = {"x": np.ones((batch, 2), np.float32), "items": np.ones((batch, steps, 2), np.float32)}
    with vklab.load(model([scan], given, ["y", "rows"], opset=8), device) as session:
        found = session.run(fed)
    assert found["y"].shape == (batch, 2) and found["rows"].shape == (batch, steps, 4)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    assert (found["y"] == 1 + steps).all()
