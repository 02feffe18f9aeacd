"""Every operator's shape rules against ONNX's own shape inference, on random shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from onnx import helper, numpy_helper, shape_inference

from support.graphs.small_models import model, value
from support.runs import tiers
from vklab.errors import ModelError
from vklab.graph import onnx_import, shapes

DIM = st.integers(0, 7)
SHAPE = st.lists(DIM, max_size=5).map(tuple)
Case = tuple[str, list[tuple[int, ...]], dict[str, Any], dict[int, list[int]]]


def onnx_shape(proto: onnx.ModelProto) -> tuple[int, ...] | None:
    """Return what ONNX infers, or None if it refuses."""
    try:
        inferred = shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError:
        return None
    return tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)


def our_shape(proto: onnx.ModelProto) -> tuple[int, ...] | None:
    """Return what the operator's function says, or None if it refuses."""
    graph = onnx_import.load_graph(proto)
    try:
        return shapes.infer(graph).infos["y"].dims
    except ModelError:
        return None


def build(case: Case, opset: int = 22) -> onnx.ModelProto:
    op_type, given, attributes, constants = case
    names = [f"x{i}" for i in range(len(given))]
    known = {f"k{i}": np.int64(v) for i, v in constants.items()}
    node = helper.make_node(op_type, [*names, *known], ["y"], **attributes)
    inputs = [value(n, s) for n, s in zip(names, given, strict=True)]
    return model([node], inputs, [value("y", None)], known, opset)


@st.composite
def broadcasts(draw: st.DrawFn) -> Case:
    target = draw(SHAPE)
    sides = []
    for _ in range(2):
        kept = [draw(st.sampled_from([d, 1])) for d in target]
        sides.append(tuple(kept[draw(st.integers(0, len(kept))) :]))
    if draw(st.booleans()):
        sides[0] = draw(SHAPE)  # may or may not fit
    return draw(st.sampled_from(["Add", "Sub", "Mul", "Div"])), sides, {}, {}


@st.composite
def products(draw: st.DrawFn) -> Case:
    m, k, n, other = (draw(DIM) for _ in range(4))
    batch = draw(st.lists(DIM, max_size=2))
    k_b = k if draw(st.integers(0, 9)) else other
    a = draw(st.sampled_from([(k,), (m, k), (*batch, m, k), (*batch[1:], m, k)]))
    b = draw(st.sampled_from([(k_b,), (k_b, n), (*batch, k_b, n), (1, k_b, n)]))
    return "MatMul", [a, b], {}, {}


@st.composite
def gemms(draw: st.DrawFn) -> Case:
    m, k, n = (draw(DIM) for _ in range(3))
    trans_a, trans_b = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    sides = [(k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)]
    return "Gemm", sides, {"transA": trans_a, "transB": trans_b}, {}


@st.composite
def windows(draw: st.DrawFn) -> Case:
    op_type = draw(st.sampled_from(["Conv", "MaxPool", "AveragePool"]))
    rank = draw(st.integers(1, 2))
    small = st.integers(1, 3)
    several = st.lists(small, min_size=rank, max_size=rank)
    kernel, auto_pad = draw(several), draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER"]))
    attributes = {"strides": draw(several), "kernel_shape": kernel, "auto_pad": auto_pad}
    if auto_pad != "SAME_UPPER":
        attributes["dilations"] = draw(several)
    if auto_pad == "NOTSET":
        # ONNX asks for pads smaller than the kernel only in words; stay below it.
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
        if op_type != "Conv":
            attributes["ceil_mode"] = draw(st.integers(0, 1))
    channels, group = draw(st.integers(1, 4)), 1
    space = draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank))
    given = [(draw(st.integers(0, 2)), channels, *space)]
    if op_type == "Conv":
        group = draw(st.sampled_from([1, channels]))
        given.append((group * draw(small), channels // group, *kernel))
        attributes["group"] = group
    return op_type, given, attributes, {}


def is_too_large(case: Case) -> bool:
    """Tell whether a window does not fit its padded input."""
    _, given, attributes, _ = case
    space, kernel = given[0][2:], attributes["kernel_shape"]
    pads = attributes.get("pads", [0] * 2 * len(space))
    dilations = attributes.get("dilations", [1] * len(space))
    padded = [s + pads[i] + pads[i + len(space)] for i, s in enumerate(space)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return any(r > p for r, p in zip(reach, padded, strict=True))


@st.composite
def reshapes(draw: st.DrawFn) -> Case:
    shape = draw(SHAPE)
    wanted = draw(st.permutations(list(shape)))
    if wanted and draw(st.booleans()):
        wanted[draw(st.integers(0, len(wanted) - 1))] = draw(st.sampled_from([-1, 0, 2]))
    allowzero = 0 if -1 in wanted else draw(st.integers(0, 1))
    return "Reshape", [shape], {"allowzero": allowzero}, {0: list(wanted)}


@st.composite
def axes(draw: st.DrawFn) -> Case:
    op_type = draw(st.sampled_from(["Squeeze", "Unsqueeze", "Flatten", "Softmax", "Transpose"]))
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 0]), min_size=1, max_size=4).map(tuple))
    axis = st.integers(-len(shape), len(shape) - 1)
    if op_type in ("Squeeze", "Unsqueeze"):
        return op_type, [shape], {}, {0: draw(st.lists(axis, max_size=2, unique=True))}
    if op_type == "Transpose":
        return op_type, [shape], {"perm": draw(st.permutations(range(len(shape))))}, {}
    return op_type, [shape], {"axis": draw(axis)}, {}


ANY = st.one_of(broadcasts(), products(), gemms(), windows(), windows(), reshapes(), axes())


@limits(max_examples=tiers.examples(250))
@given(ANY)
@pytest.mark.full
def test_shapes_are_those_that_onnx_infers(case):
    proto = build(case)
    ours, theirs = our_shape(proto), onnx_shape(proto)
    if theirs is None:
        return  # what ONNX refuses is in the next test
    if ours is None and case[0] in ("Conv", "MaxPool", "AveragePool"):
        assert is_too_large(case)  # ONNX infers some size, zero or even one, for such a window
        return
    if ours is None and case[0] == "Reshape":
        assert np.prod(case[1][0]) != np.prod(theirs)  # ONNX does not count the elements
        return
    assert ours == theirs


@pytest.mark.parametrize("case", [
    ("Add", [(3,), (4,)], {}, {}), ("Add", [(2, 3), (3, 2)], {}, {}),
    ("MatMul", [(2, 3), (4, 5)], {}, {}), ("MatMul", [(), (3,)], {}, {}),
    ("MatMul", [(2, 3, 4), (3, 4, 5)], {}, {}), ("Gemm", [(2, 3), (4, 5)], {}, {}),
    ("Gemm", [(2, 3, 4), (4, 5)], {}, {}),
    ("Conv", [(1, 2, 5, 5), (3, 2, 3)], {}, {}),
    ("MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [3]}, {}),
    ("MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [3, 3], "pads": [1, 1]}, {}),
    ("MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [3, 3], "strides": [1]}, {}),
    ("MaxPool", [(1, 2, 5, 5)], {"kernel_shape": [3, 3], "dilations": [1]}, {}),
    ("Transpose", [(2, 3)], {"perm": [0, 0]}, {}),
    ("Transpose", [(2, 3)], {"perm": [0, 2]}, {}),
    ("Reshape", [(2, 3)], {}, {0: [-1, -1]}), ("Reshape", [(2, 3)], {}, {0: [-1, 4]}),
    ("Squeeze", [(2, 1)], {}, {0: [0]}), ("Squeeze", [(2, 1)], {}, {0: [2]}),
    ("Unsqueeze", [(2, 1)], {}, {0: [0, 0]}), ("Unsqueeze", [(2, 1)], {}, {0: [5]}),
    ("Flatten", [(2, 3)], {"axis": 3}, {}), ("Softmax", [(2, 3)], {"axis": 2}, {}),
], ids=lambda case: f"{case[0]}{case[1]}{case[2] or ''}{case[3] or ''}")  # fmt: skip
def test_what_onnx_refuses_is_refused(case):
    proto = build(case)
    assert onnx_shape(proto) is None
    assert our_shape(proto) is None


@pytest.mark.parametrize(("case", "words"), [
    (("Conv", [(1, 4, 5, 5), (3, 3, 3, 3)], {}, {}), "4 channels, 3 filters of depth 3"),
    (("Conv", [(1, 4, 5, 5), (3, 2, 3, 3)], {"group": 2}, {}), "group=2 do not fit together"),
    (("Conv", [(1, 4, 5, 5), (3, 4, 3, 3)], {"group": 0}, {}), "group=0"),
    (("Conv", [(1, 4, 5, 5), (3, 4, 3, 3)], {"kernel_shape": [5, 5]}, {}), r"W has \(3, 3\)"),
    (("Conv", [(1, 4, 5, 5), (3, 4, 3, 3), (4,)], {}, {}), r"B has shape .*; it must be \(3,\)"),
    (("Conv", [(1, 4, 5, 5), (3, 4, 3, 3)], {"pads": [-1] * 4}, {}), "pads"),
    (("Conv", [(1, 4, 5, 5), (3, 4, 3, 3)], {"strides": [0, 1]}, {}), "strides"),
    (("Conv", [(1, 4, 2, 2), (3, 4, 3, 3)], {}, {}), "a window of 3 does not fit 2"),
    (("Conv", [(1, 4, 5, 5), (3, 4, 3, 3)], {"auto_pad": "SAME"}, {}), "auto_pad='SAME'"),
    (("Gemm", [(2, 3), (3, 5), (4,)], {}, {}), r"shapes \(4,\) and \(2, 5\) do not broadcast"),
    (("Gemm", [(2, 3), (3, 5), (1, 2, 5)], {}, {}), r"C of shape .* does not broadcast to"),
    (("Transpose", [(2, 3)], {"perm": [0]}, {}), r"perm=\(0,\) is not a permutation of 2 axes"),
    (("GlobalMaxPool", [(1, 2)], {}, {}), "no spatial axes"),
    (("Split", [(7,)], {"num_outputs": 1 << 40}, {}), "the node has 1 outputs"),
    (("InstanceNormalization", [(1, 2), (2,), (2,)], {}, {}), "no spatial axes"),
    (("GroupNormalization", [(2,), (2,), (2,)], {"num_groups": 1}, {}), "no channels"),
    (("Reshape", [(2, 3)], {}, {0: [5]}), "6 elements"),
    (("Reshape", [(2, 3)], {}, {0: [6, 1, 0]}), "keeps axis 2"),
    (("Reshape", [(2, 3)], {}, {0: [-2, 3]}), "below -1"),
])  # fmt: skip
def test_errors_say_which_values_do_not_fit(case, words):
    with pytest.raises(ModelError, match=words):
        shapes.infer(onnx_import.load_graph(build(case)))


def test_values_of_constants_are_followed_through_views():
    proto = build(("Reshape", [], {}, {0: [3, 4], 1: [2, 1]}))
    info = shapes.infer(onnx_import.load_graph(proto)).infos["y"]
    assert info.constant is not None
    np.testing.assert_array_equal(
        info.constant, numpy_helper.to_array(proto.graph.initializer[0]).reshape(2, 1)
    )
