"""Operators that follow indices, or choose: gathers, scatters, TopK, NonZero, made tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import model, one_node, random_array, value
from vklab import settings
from vklab.errors import CheckError, ModelError


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def indices(shape: tuple[int, ...], size: int, dtype: str = "int64") -> np.ndarray:
    return np.random.default_rng(1).integers(-size, size, shape).astype(dtype)


def check_all(
    op_type: str, inputs: list, constants: Sequence[int], device: int, outputs: int = 1, **more
) -> None:
    """Compare all outputs with ONNX Runtime's, whatever their types."""
    opset = more.pop("opset", 17)
    proto, fed = one_node(op_type, inputs, constants, opset, outputs, **more)
    for output in proto.graph.output:
        output.ClearField("type")
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        assert session.check(fed).passed


@pytest.mark.parametrize("axis", [-3, 0, 1, 2])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather(device, axis, dtype):
    x = random_array((5, 7, 3))
    for shape in ((), (4,), (2, 3), (0,)):
        taken = indices(shape, x.shape[axis], dtype)
        check_operator("Gather", inputs=[x, np.asarray(taken)], device=device, axis=axis)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "int64", "float64"])
def test_gathers_of_every_dtype(device, dtype):
    x = (random_array((5, 7)) * 9).astype(dtype)
    check_operator("Gather", inputs=[x, indices((3,), 5)], device=device)
    check_operator("GatherElements", inputs=[x, indices((3, 7), 5)], device=device)


def test_gather_beyond_the_end_reads_nothing_outside(device):
    x = random_array((5, 3))
    proto, fed = one_node("Gather", [x, integers(99, -99, 2**40)])
    with vklab.load(proto, device) as session:
        np.testing.assert_array_equal(session.run(fed)["y0"][:2], x[[4, 0]])


OUTSIDE = {  # op_type: indices of which one lies outside, attributes, the index, axis and size
    "Gather": ([[0, 7]], {"axis": 1}, "index 7, but axis 1 of x0 (5, 3) has 3 elements"),
    "GatherElements": ([[5, 0, -5]], {}, "index 5, but axis 0 of x0 (5, 3) has 5 elements"),
    "GatherND": ([[0, 0], [1, -4]], {}, "index -4, but axis 1 of x0 (5, 3) has 3 elements"),
    "ScatterElements": ([[0, -6, 0]], {}, "index -6, but axis 0 of x0 (5, 3) has 5 elements"),
    "ScatterND": ([[0, 0], [1, 3]], {}, "index 3, but axis 1 of x0 (5, 3) has 3 elements"),
}


@pytest.mark.parametrize("op_type", OUTSIDE)
def test_an_index_outside_its_axis(device_index, op_type):
    taken, attributes, words = OUTSIDE[op_type]
    inputs = [random_array((5, 3)), integers(*taken)]
    if op_type.startswith("Scatter"):
        inputs.append(np.ones((2,) if op_type == "ScatterND" else (1, 3), np.float32))
    for constants in ([1], [0, 1]):  # a known index is refused before the first run
        proto, _ = one_node(op_type, inputs, constants, **attributes)
        with pytest.raises(ModelError, match=re.escape(words)):
            vklab.load(proto, device_index).close()
    proto, fed = one_node(op_type, inputs, **attributes)
    with vklab.load(proto, device_index) as session:  # of a computed one the check tells
        session.run(fed)
        with pytest.raises(CheckError, match="ONNX Runtime refuses these inputs"):
            session.check(fed)
        with settings.settings(CHECK="outputs"), pytest.raises(CheckError, match="refuses these"):
            session.run(fed)


def test_an_index_outside_its_axis_in_a_branch_that_is_not_taken(device_index):
    gather = helper.make_node("Gather", ["x", "far"], ["a"])
    keep = helper.make_node("Identity", ["x"], ["b"])
    far = numpy_helper.from_array(integers(9), "far")
    bodies = {
        name: helper.make_graph(
            [node],
            name,
            [],
            [onnx.ValueInfoProto(name=node.output[0])],
            [far][: len(node.input) - 1],
        )
        for name, node in (("then_branch", gather), ("else_branch", keep))
    }
    proto = model(
        [helper.make_node("If", ["flag"], ["y"], **bodies)],
        [value("flag", (), onnx.TensorProto.BOOL), value("x", (3,))],
        ["y"],
    )
    x = random_array((3,))
    with vklab.load(proto, device_index) as session:
        fed = {"flag": np.asarray(False), "x": x}
        np.testing.assert_array_equal(session.run(fed)["y"], x)
        with pytest.raises(ModelError, match="index 9, but axis 0 of x"):
            session.run({**fed, "flag": np.asarray(True)})


def test_gather_elements_and_nd(device):
    x = random_array((5, 7, 3, 2))
    for axis in range(-1, 3):
        taken = indices((2, 7, 1, 2) if axis == 0 else (5, 4, 3, 1), x.shape[axis])
        check_operator("GatherElements", inputs=[x, taken], device=device, axis=axis)
    for shape, batch in (((4, 2), 0), ((4,), 0), ((5, 2), 1), ((5, 7, 6, 1), 2), ((3, 1), 0)):
        taken = indices(shape, 2)
        check_operator("GatherND", inputs=[x, taken], device=device, batch_dims=batch)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_scatter_with_repeated_indices(device, reduction, dtype):
    x, updates = ((random_array(s) * 3).astype(dtype) for s in ((5, 7), (9, 7)))
    rows = indices((9, 7), 5) if reduction != "none" else np.arange(63).reshape(9, 7) % 7 % 5
    given = {"device": device, "opset": 18, "reduction": reduction, "rtol": 1e-2}
    check_operator("ScatterElements", inputs=[x, rows, updates], axis=0, **given)
    check_operator("ScatterND", inputs=[x, indices((9, 1), 5), updates], **given)


def test_scatter_elsewhere(device):
    x = random_array((3, 5, 7))
    taken = np.tile(np.arange(4), (2, 5, 1))
    check_operator(
        "ScatterElements", inputs=[x, taken, random_array((2, 5, 4))], device=device, axis=-1
    )
    check_operator(
        "Scatter", inputs=[x, taken, random_array((2, 5, 4))], opset=10, axis=2, device=device
    )
    places = np.stack([indices((2, 3), 3), indices((2, 3), 5)], -1)
    for dtype in ("float32", "int64", "float16", "bool"):
        moved = x.astype(dtype), places, random_array((2, 3, 7)).astype(dtype)
        check_operator("ScatterND", inputs=moved, device=device)
    check_operator(
        "ScatterND", inputs=[x, np.zeros((0, 2), np.int64), random_array((0, 7))], device=device
    )


@pytest.mark.full
def test_scatter_of_more_than_an_invocation_may_loop(device_index):
    x, updates = random_array((11,)), random_array((70_001,))
    places = indices((70_001,), 11)
    check_operator(
        "ScatterElements",
        inputs=[x, places, updates],
        opset=18,
        reduction="max",
        device=device_index,
    )


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "float64"])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(device, dtype, largest):
    x = (random_array((3, 31, 2)) * 5).astype(dtype)  # integers repeat: ties go by index
    for axis, k in ((0, 2), (1, 31), (2, 1)):
        check_all("TopK", [x, integers(k)], [1], device, 2, axis=axis, largest=largest)


def test_top_k_by_attribute_and_of_nan(device):
    x = random_array((2, 7))
    check_all("TopK", [x], [], device, 2, opset=9, k=2, axis=0)
    check_all("TopK", [x, integers(0)], [1], device, 2)
    proto, fed = one_node(
        "TopK", [np.array([1, np.nan, -0.0, 0.0, -np.inf], np.float32)], k=4, opset=9, outputs=2
    )
    with vklab.load(proto, device) as session:
        np.testing.assert_array_equal(session.run(fed)["y1"], [1, 0, 2, 3])


@pytest.mark.parametrize("columns", [1023, 1025, 8209])
def test_top_k_of_long_rows(device_index, columns):
    x = random_array((3, columns))
    for k in (1, 5, columns):
        check_all("TopK", [x, integers(k)], [1], device_index, 2, largest=k % 2)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "float16", "uint8"])
def test_non_zero(device, dtype):
    x = (random_array((3, 5, 7)) * 1.5).astype(dtype)
    check_all("NonZero", [x], [], device)
    check_all("NonZero", [np.zeros((3, 5), dtype)], [], device)


def test_non_zero_and_compress_over_many_workgroups(device_index):
    x = (random_array((3, 4099)) * 1.5).astype(np.int32)
    check_all("NonZero", [x], [], device_index)
    check_operator("Compress", inputs=[x, x[0] != 0], device=device_index, axis=1)
    check_operator("Compress", inputs=[x, x.ravel() > 0], device=device_index)
    check_operator("Compress", inputs=[x, np.array([True, False])], device=device_index, axis=0)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
@pytest.mark.parametrize("count", [1, 97, 2053])
def test_unique(device_index, dtype, count):
    x = (random_array((count,)) * 9).astype(dtype)
    check_all("Unique", [x], [], device_index, 4)
    check_all("Unique", [x[:, None]], [], device_index, 1)


def test_one_hot_trilu_and_reverse_sequence(device):
    values = np.array([2, 5], np.float32)
    for axis in (-1, 0, 1):
        inputs = [indices((3, 5), 9), np.array(7, np.int64), values]
        check_all("OneHot", inputs, [1], device, axis=axis)
    for k in (-99, -2, 0, 3, 99):
        inputs = [random_array((2, 5, 7)), np.array(k, np.int64)]
        for upper in (0, 1):
            check_operator("Trilu", inputs=inputs, constants=[1], device=device, upper=upper)
    check_operator("Trilu", inputs=[np.ones((3, 5), np.int64)], device=device)
    for axis, lengths in ((0, (7, 1, 3, 0, 2)), (1, (5, 4, 0, 1, 2, 3, 5))):
        inputs = [random_array((7, 5, 2)), integers(*lengths)]
        check_operator(
            "ReverseSequence", inputs=inputs, device=device, time_axis=axis, batch_axis=1 - axis
        )


@pytest.mark.parametrize(("start", "limit", "delta", "dtype"), [
    (1, 7, 2, "int64"), (7, 1, -4, "int32"), (0, 1, 0.1, "float32"), (3, 3, 1, "int64"),
    (1, 0, 0.3, "float64"),
])  # fmt: skip
def test_range(device, start, limit, delta, dtype):
    inputs = [np.array(v, dtype) for v in (start, limit, delta)]
    check_operator("Range", inputs=inputs, constants=[0, 1, 2], device=device)


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "words"), [
    ("GatherND", [np.zeros((2, 3)), np.zeros((2, 3), np.int64)], {}, "do not fit"),
    ("GatherElements", [np.zeros((2, 3)), np.zeros((2, 4), np.int64)], {}, "do not fit"),
    ("ScatterND", [np.zeros(3), np.zeros((2, 1), np.int64), np.zeros(3)], {}, "updates for"),
    ("TopK", [np.zeros(3), integers(4)], {}, "from 0 to 3"),
    ("TopK", [np.zeros(3), integers()], {}, "from 0 to 3"),
    ("Trilu", [np.zeros((3, 2)), integers()], {}, "one number"),
])  # fmt: skip
def test_what_does_not_fit_is_said(device_index, op_type, inputs, attributes, words):
    outputs = 2 if op_type == "TopK" else 1
    proto, _ = one_node(
        op_type, inputs, [1] if len(inputs[1]) < 2 else [], outputs=outputs, **attributes
    )
    with pytest.raises(ModelError, match=words):
        vklab.load(proto, device_index)
