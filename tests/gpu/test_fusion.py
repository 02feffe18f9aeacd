"""Fused dispatches: fewer, and to the bit what the operators compute one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import vklab
from support.graphs.small_models import random_array
from support.runs import tiers
from vklab import settings as switches
from vklab.plan.fusion.text import codegen
from vklab.shader import source

KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64,
         "bool": TensorProto.BOOL, "int8": TensorProto.INT8}  # fmt: skip
node = helper.make_node


def model(nodes, inputs, outputs, **constants):
    """Return a model; inputs are arrays by name, whose shapes and dtypes are taken."""
    return helper.make_model(
        helper.make_graph(
            nodes,
            "fusion",
            [
                helper.make_tensor_value_info(n, KINDS[str(a.dtype)], a.shape)
                for n, a in inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, KINDS[kind], None)
                for name, kind in outputs.items()
            ],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )


def run(made, inputs, device, **given):
    """Return outputs and the plan."""
    with switches.settings(**given), vklab.load(made, device) as session:
        return session.run(inputs), session.plan


def assert_fused(made, inputs, device, count, before=None):
    """Check the number of dispatches, and every bit of the results against no fusion."""
    fused, plan = run(made, inputs, device)
    apart, plain = run(made, inputs, device, DISABLE_FUSION=True)
    for name, expected in apart.items():
        np.testing.assert_array_equal(fused[name], expected, err_msg=name)
        assert fused[name].dtype == expected.dtype
    assert len(plan.dispatches) == count, plan.rows()
    assert len(plain.dispatches) > count if before is None else len(plain.dispatches) == before
    return plan


def test_a_tree_with_broadcasts_and_a_transpose_is_one_dispatch(device_index):
    x = random_array((2, 5, 7))
    nodes = [
        node("Add", ["x", "b"], ["t"]),
        node("Relu", ["t"], ["u"]),
        node("Transpose", ["u"], ["v"], perm=[0, 2, 1]),
        node("Mul", ["v", "s"], ["w"]),
        node("Sigmoid", ["w"], ["z"]),
        node("Mul", ["w", "z"], ["y"]),
    ]
    made = model(nodes, {"x": x}, {"y": "float32"}, b=random_array((7,)), s=np.float32(1.5))
    plan = assert_fused(made, {"x": x}, device_index, 1)
    text = source.expand(source.find("pointwise"), plan.dispatches[0].fragment)
    assert "onnx::add(x0, x1)" in text and "params.p" in text
    assert "// compute: add, relu, move, mul, sigmoid, mul" in text


@pytest.mark.full
def test_a_chain_of_a_thousand_is_one_dispatch(device_index):
    nodes = [node("Add", [f"t{i}", f"c{i}"], [f"t{i + 1}"]) for i in range(1000)]
    constants = {f"c{i}": np.array([0.001 * (i % 7)], np.float32) for i in range(1000)}
    x = random_array((1,))
    outputs, plan = run(
        model(nodes, {"t0": x}, {"t1000": "float32"}, **constants), {"t0": x}, device_index
    )
    expected = x.copy()
    for i in range(1000):
        expected = expected + constants[f"c{i}"]
    np.testing.assert_array_equal(outputs["t1000"], expected)
    assert len(plan.dispatches) == 1


def test_a_convolution_adds_activates_and_transposes_as_it_stores(device_index):
    inputs = {"x": random_array((2, 5, 9, 11)), "r": random_array((2, 13, 9, 11), 1)}
    nodes = [
        node("Conv", ["x", "w", "bias"], ["t"], pads=[1, 1, 1, 1]),
        node("Relu", ["t"], ["u"]),
        node("Add", ["u", "r"], ["v"]),
        node("Transpose", ["v"], ["y"], perm=[0, 2, 3, 1]),
    ]
    made = model(
        nodes, inputs, {"y": "float32"}, w=random_array((13, 5, 3, 3)), bias=random_array((13,))
    )
    assert_fused(made, inputs, device_index, 1)


def test_the_heads_of_an_attention_are_stored_in_their_places(device_index):
    x = random_array((2, 7, 16))
    nodes = [
        node("MatMul", ["x", "w"], ["t"]),
        node("Add", ["t", "b"], ["u"]),
        node("Reshape", ["u", "heads"], ["v"]),
        node("Transpose", ["v"], ["y"], perm=[0, 2, 1, 3]),
    ]
    made = model(
        nodes,
        {"x": x},
        {"y": "float32"},
        w=random_array((16, 24)),
        b=random_array((24,)),
        heads=np.array([2, 7, 4, 6]),
    )
    assert_fused(made, {"x": x}, device_index, 1)


@pytest.mark.parametrize("operator, attributes", [
    ("ReduceSum", {"keepdims": 0}), ("ReduceMax", {"keepdims": 1}), ("Softmax", {"axis": -1}),
    ("ArgMax", {"axis": 1}),
])  # fmt: skip
def test_a_reduction_computes_what_it_reads_and_what_becomes_of_it(
    device_index, operator, attributes
):
    x = random_array((3, 5, 67))
    inputs = ["t", "axes"] if operator.startswith("Reduce") else ["t"]
    nodes = [node("Mul", ["x", "s"], ["t"]), node(operator, inputs, ["u"], **attributes)]
    last = "Cast" if operator == "ArgMax" else "Exp"
    extra = {"to": TensorProto.FLOAT} if last == "Cast" else {}
    made = model(
        [*nodes, node(last, ["u"], ["y"], **extra)],
        {"x": x},
        {"y": "float32"},
        s=np.float32(0.25),
        axes=np.array([2]),
    )
    assert_fused(made, {"x": x}, device_index, 2 if operator == "ArgMax" else 1, 3)


def test_a_concatenation_takes_in_what_it_copies(device_index):
    inputs = {"x": random_array((3, 10)), "k": random_array((3, 4))}
    nodes = [
        node("Mul", ["x", "x"], ["t"]),
        node("Slice", ["t", "st", "en", "ax", "sp"], ["u"]),
        node("Exp", ["k"], ["e"]),
        node("Concat", ["u", "e"], ["y"], axis=1),
    ]
    made = model(
        nodes,
        inputs,
        {"y": "float32"},
        st=np.array([9]),
        en=np.array([-11]),
        ax=np.array([1]),
        sp=np.array([-3]),
    )
    assert_fused(made, inputs, device_index, 1, 5)


@pytest.mark.parametrize("kind", ["float16", "int8", "int64"])
def test_values_in_between_are_rounded_as_if_they_were_stored(device_index, kind):
    x = (random_array((37,)) * 90).astype(kind)
    nodes = [
        node("Mul", ["x", "x"], ["t"]),
        node("Add", ["t", "x"], ["u"]),
        node("Cast", ["u"], ["y"], to=TensorProto.FLOAT),
    ]
    has = kind != "int64" or "shaderInt64" in vklab.devices()[device_index].features
    steps = (1, 3) if has else (0, 0)  # the host computes in int64 for a device that cannot
    assert_fused(model(nodes, {"x": x}, {"y": "float32"}), {"x": x}, device_index, *steps)


def test_conditions_choose_within_a_kernel(device_index):
    x = random_array((4, 9))
    nodes = [
        node("Greater", ["x", "zero"], ["m"]),
        node("Not", ["m"], ["n"]),
        node("Where", ["n", "x", "low"], ["y"]),
    ]
    made = model(nodes, {"x": x}, {"y": "float32"}, zero=np.float32(0), low=np.float32(-np.inf))
    assert_fused(made, {"x": x}, device_index, 1, 3)


def test_what_others_read_is_stored(device_index):
    x = random_array((6, 5))
    two = [node("Exp", ["x"], ["t"]), node("Neg", ["t"], ["u"])]
    assert_fused(
        model(two, {"x": x}, {"t": "float32", "u": "float32"}), {"x": x}, device_index, 2, 2
    )
    apart = [*two, node("Transpose", ["t"], ["v"], perm=[1, 0]), node("Abs", ["t"], ["w"])]
    outputs = {"u": "float32", "v": "float32", "w": "float32"}
    assert_fused(model(apart, {"x": x}, outputs), {"x": x}, device_index, 4, 4)


def test_a_value_read_along_two_walks_is_stored(device_index):
    x = random_array((5, 5))
    nodes = [
        node("Exp", ["x"], ["t"]),
        node("Transpose", ["t"], ["u"], perm=[1, 0]),
        node("Add", ["t", "u"], ["y"]),
    ]
    assert_fused(model(nodes, {"x": x}, {"y": "float32"}), {"x": x}, device_index, 2, 3)


@pytest.mark.parametrize(("operator", "residual"), [("Softmax", "r"), ("MatMul", "x")])
def test_a_value_that_a_kernel_reads_in_two_places_is_stored(device_index, operator, residual):
    """As an operand and as a residual, or as both factors: not only where it could be computed."""
    x = random_array((17, 17))
    reads = ["r", "r"] if operator == "MatMul" else ["r"]
    nodes = [
        node("Relu", ["x"], ["r"]),
        node(operator, reads, ["s"]),
        node("Add", ["s", residual], ["y"]),
    ]
    made = model(nodes, {"x": x}, {"y": "float32"})
    assert_fused(made, {"x": x}, device_index, 2)


def test_a_fused_dispatch_keeps_within_what_every_device_takes(device_index):
    inputs = {f"x{i}": random_array((3, 4, 5, 2), i) for i in range(24)}
    nodes, last = [], "x0"
    for i in range(1, 24):
        turned = f"v{i}"
        perm = [[1, 0, 2, 3], [0, 1, 2, 3], [3, 1, 0, 2]][i % 3]
        shape = np.array([3, 4, 5, 2])
        nodes += [
            node("Transpose", [f"x{i}"], [turned], perm=perm),
            node("Reshape", [turned, "shape"], [f"r{i}"]),
            node("Add", [last, f"r{i}"], [f"s{i}"]),
        ]
        last = f"s{i}"
    made = model(nodes, inputs, {last: "float32"}, shape=shape)
    fused, plan = run(made, inputs, device_index)
    apart, _ = run(made, inputs, device_index, DISABLE_FUSION=True)
    np.testing.assert_array_equal(fused[last], apart[last])
    for dispatch in plan.dispatches:
        words = sum(len(v) if isinstance(v, tuple) else 1 for _, v in dispatch.push)
        assert 4 * words <= codegen.PUSH_BYTES and len(dispatch.reads) <= 16
    assert len(plan.dispatches) < 23


UNARY = ["Neg", "Relu", "Abs", "Floor"]
BINARY = ["Add", "Sub", "Mul", "Max"]


@st.composite
def graphs(draw):
    """Draw a graph of element-wise operators and moves over values of one size, and its input."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
    values = [("x", shape)]
    nodes, constants = [], {}
    for number in range(draw(st.integers(2, 9))):
        name, (source_name, dims) = f"t{number}", draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["unary", "binary", "constant", "turn", "slice", "reshape"]))
        if kind == "unary":
            nodes.append(node(draw(st.sampled_from(UNARY)), [source_name], [name]))
        elif kind == "binary":
            other = draw(st.sampled_from([n for n, d in values if d == dims]))
            nodes.append(node(draw(st.sampled_from(BINARY)), [source_name, other], [name]))
        elif kind == "constant":
            part = tuple(d if draw(st.booleans()) else 1 for d in dims)
            constants[f"c{number}"] = random_array(part, number)
            nodes.append(node(draw(st.sampled_from(BINARY)), [source_name, f"c{number}"], [name]))
        elif kind == "turn":
            perm = draw(st.permutations(range(len(dims))))
            nodes.append(node("Transpose", [source_name], [name], perm=perm))
            dims = tuple(dims[axis] for axis in perm)
        elif kind == "slice":
            axis, step = draw(st.integers(0, len(dims) - 1)), draw(st.sampled_from([1, 2, -1]))
            first = draw(st.integers(0, dims[axis] - 1))
            end = -(10**6) if step < 0 else 10**6
            for key, value in (("st", first), ("en", end), ("ax", axis), ("sp", step)):
                constants[f"{key}{number}"] = np.array([value])
            keys = [f"{key}{number}" for key in ("st", "en", "ax", "sp")]
            nodes.append(node("Slice", [source_name, *keys], [name]))
            size = len(range(dims[axis])[first::step])
            dims = (*dims[:axis], size, *dims[axis + 1 :])
        else:
            dims = (int(np.prod(dims)),) if len(dims) > 1 else (1, *dims)
            constants[f"shape{number}"] = np.array(dims)
            nodes.append(node("Reshape", [source_name, f"shape{number}"], [name]))
        values.append((name, dims))
    read = {name for item in nodes for name in item.input}
    ends = {name: "float32" for name, _ in values[1:] if name not in read}
    return nodes, random_array(shape), ends, constants


def check_random_graph(device, drawn):
    nodes, x, ends, constants = drawn
    made = model(nodes, {"x": x}, ends, **constants)
    fused, plan = run(made, {"x": x}, device)
    apart, plain = run(made, {"x": x}, device, DISABLE_FUSION=True)
    for name in ends:
        np.testing.assert_array_equal(fused[name], apart[name], err_msg=name)
    assert len(plan.dispatches) <= len(plain.dispatches)


@given(drawn=graphs())
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_graphs_compute_the_same_fused(device_index, drawn):
    check_random_graph(device_index, drawn)


@pytest.mark.slow
@given(drawn=graphs())
@settings(max_examples=tiers.examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_graphs_compute_the_same_fused(device_index, drawn):
    check_random_graph(device_index, drawn)


@pytest.mark.parametrize("shape", [(1, 7), (3, 5), (2, 3, 67)])
@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "bool"])
def test_siblings_compute_what_they_do_apart(device_index, kind, shape):
    inputs = {name: (3 * random_array(shape, n)).astype(kind) for n, name in enumerate("abc")}
    nodes = [
        node("Concat", ["a", "b", "a"], ["y"], axis=-1),
        node("Split", ["c"], ["u", "v"], axis=-1, num_outputs=2),
    ]
    made = model(nodes, inputs, dict.fromkeys("yuv", kind))
    fused, plan = run(made, inputs, device_index)
    apart, plain = run(made, inputs, device_index, DISABLE_PASSES="join_siblings")
    assert len(plan.dispatches) < len(plain.dispatches) == 5
    for name, expected in apart.items():
        np.testing.assert_array_equal(fused[name], expected)
    np.testing.assert_array_equal(fused["y"], np.concatenate([inputs[n] for n in "aba"], -1))
