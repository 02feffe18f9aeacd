"""Operators that place elements elsewhere: slices, parts, tiles, pads, blocks."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node, random_array
from vklab import settings
from vklab.errors import ModelError

LOWEST, LARGEST = -(2**63), 2**63 - 1


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def dispatches(op_type: str, inputs: list, constants: list, device: int, **attributes) -> int:
    proto, _ = one_node(op_type, inputs, constants, **attributes)
    with vklab.load(proto, device) as session:
        return session.plan.summary()["dispatches"]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), [
    ((1,), (3,), (1,), (1,)),
    ((-1,), (LOWEST,), (2,), (-1,)),
    ((0, 5, 6), (LARGEST, 0, -8), (0, 1, 2), (2, -2, -3)),
    ((-99, 99), (99, -99), (0, -1), (1, -1)),
    ((3,), (3,), (0,), (1,)),
    ((4,), (1,), (1,), (1,)),
])  # fmt: skip
def test_slice(device, starts, ends, axes, steps):
    inputs = [random_array((3, 5, 7)), *(integers(*v) for v in (starts, ends, axes, steps))]
    check_operator("Slice", inputs=inputs, constants=[1, 2, 3, 4], device=device)


def test_slice_with_attributes_and_of_everything(device):
    x = random_array((3, 5))
    check_operator("Slice", inputs=[x], opset=9, device=device, starts=[1, -9], ends=[-1, 9])
    whole = [x, integers(0), integers(LARGEST)]
    assert dispatches("Slice", whole, [1, 2], device) == 0


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_concat(device, axis):
    shapes = [[3, 5, 7] for _ in range(6)]
    for number, shape in enumerate(shapes):
        shape[axis] = number
    check_operator("Concat", shapes, device=device, axis=axis)


def test_concat_of_one_that_has_elements_is_a_view(device):
    inputs = [random_array(shape) for shape in ((0, 3), (2, 3), (0, 3))]
    check_operator("Concat", inputs=inputs, device=device, axis=0)
    assert dispatches("Concat", inputs, [], device, axis=0) == 0


@pytest.mark.parametrize(("opset", "sizes", "attributes"), [
    (17, (2, 0, 5), {"axis": -1}), (17, None, {}), (18, None, {"num_outputs": 3, "axis": 1}),
    (11, None, {"split": [1, 6], "axis": 1}), (11, None, {"axis": 0}),
])  # fmt: skip
def test_split(device, opset, sizes, attributes):
    inputs = [random_array((6, 7))] + ([integers(*sizes)] if sizes else [])
    parts = len(sizes or attributes.get("split", ())) or 3
    proto, fed = one_node("Split", inputs, [1] if sizes else [], opset, parts, **attributes)
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        assert session.check(fed).passed


def test_expand_and_tile(device):
    x = random_array((3, 1, 5))
    for shape in ((3, 7, 5), (2, 1, 1, 5), (1,), (2, 3, 4, 5), (0, 3, 1, 5)):
        check_operator("Expand", inputs=[x, integers(*shape)], constants=[1], device=device)
    for repeats in ((1, 1, 1), (2, 3, 1), (1, 0, 1), (3, 1, 2)):
        check_operator("Tile", inputs=[x, integers(*repeats)], constants=[1], device=device)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(1, 0, 2, 0, 3, 1), (0, 0, 2, 0, 0, 0), (0, 2, 0, 2, 0, 0)])
def test_pad(device, mode, pads):
    inputs = [random_array((5, 4, 7)), integers(*pads)]
    check_operator("Pad", inputs=inputs, constants=[1], opset=19, device=device, mode=mode)


def test_pad_cuts_and_takes_axes(device):
    x = random_array((5, 4, 7))
    one = [x, integers(-1, -2, 1, 1, 0, -3), np.array(2, np.float32)]
    check_operator("Pad", inputs=one, constants=[1], device=device)
    other = [x, integers(1, -1, 2, 0), None, integers(-1, 0)]
    check_operator("Pad", inputs=other, constants=[1, 3], opset=18, device=device)
    check_operator("Pad", inputs=[x], opset=10, device=device, pads=[0, 1, 2, 1, 0, 3], value=1.5)
    empty = [random_array((0, 3)), integers(1, 0, 1, 2)]
    check_operator("Pad", inputs=empty, constants=[1], device=device)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(device, mode):
    check_operator("DepthToSpace", [(2, 27, 2, 5)], device=device, blocksize=3, mode=mode)
    check_operator("SpaceToDepth", [(2, 3, 6, 9)], device=device, blocksize=3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "float16", "int64", "float64"])
def test_every_dtype_moves(device, dtype):
    x = (random_array((3, 5, 7)) * 9).astype(dtype)
    check_operator("Transpose", inputs=[x], device=device, perm=[2, 0, 1])
    check_operator("Concat", inputs=[x, x], device=device, axis=1)
    check_operator("Pad", inputs=[x, integers(1, 0, 2, 0, 1, 0)], constants=[1], device=device)


def test_eight_axes(device):
    shape = (2, 3, 1, 2, 2, 3, 1, 2)
    x = random_array(shape)
    check_operator("Transpose", inputs=[x], device=device, perm=[7, 5, 3, 1, 0, 2, 4, 6])
    check_operator("Tile", inputs=[x, integers(*shape)], constants=[1], device=device)
    walk = [integers(*v) for v in ((-1,) * 8, (LOWEST,) * 8, range(8), (-1, -2) * 4)]
    check_operator("Slice", inputs=[x, *walk], constants=[1, 2, 3, 4], device=device)
    pads = integers(*([1, 0] * 8))
    check_operator("Pad", inputs=[x, pads], constants=[1], device=device, mode="edge")


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "words"), [
    ("Concat", [np.zeros((2, 3)), np.zeros((2, 4))], {"axis": 0}, "outside axis 0"),
    ("Split", [np.zeros(5), integers(2, 2)], {}, "do not fill"),
    ("Slice", [np.zeros(5), integers(0), integers(1), integers(0), integers(0)], {}, "steps not 0"),
    ("Pad", [np.zeros(3), integers(-2, -2)], {}, "leave nothing"),
    ("Pad", [np.zeros(3), integers(1)], {}, "1 axes"),
    ("Tile", [np.zeros(3), integers(1, 2)], {}, "does not fit"),
])  # fmt: skip
def test_what_does_not_fit_is_said(device_index, op_type, inputs, attributes, words):
    proto, _ = one_node(op_type, inputs, range(1, len(inputs)), **attributes)
    with pytest.raises(ModelError, match=words):
        vklab.load(proto, device_index)
