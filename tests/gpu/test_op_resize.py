"""Resize and Upsample against ONNX's reference and ONNX Runtime: every mode and dtype."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node, random_array
from vklab.runtime.observe import compare

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric"]  # fmt: skip
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def check_resize(device, x, scales=None, sizes=None, roi=None, **attributes):
    """Compare Resize with ONNX's reference implementation and return what it makes."""
    floats = None if scales is None else np.array(scales, np.float32)
    whole = None if sizes is None else np.array(sizes, np.int64)
    part = None if roi is None else np.array(roi, np.float32)
    inputs = [x, part, floats, whole]
    while inputs[-1] is None:
        inputs.pop()
    known = [i for i, array in enumerate(inputs) if i and array is not None]
    proto, fed = one_node("Resize", inputs, known, 19, **attributes)
    expected = ReferenceEvaluator(proto).run(None, fed)[0]
    with vklab.load(proto, device) as session:
        made = session.run(fed)
    assert made["y0"].dtype == x.dtype
    comparison = compare.compare(made, {"y0": expected})
    assert comparison.passed, f"{attributes}: {comparison}"
    return made["y0"]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_coordinates(device, mode, coordinates):
    x = random_array((1, 2, 7, 5))
    how = {"mode": mode, "coordinate_transformation_mode": coordinates}
    check_resize(device, x, [1, 1, 1.7, 0.6], **how)
    check_resize(device, x, sizes=[1, 2, 3, 11], **how)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_roundings(device, rounding):
    for coordinates in COORDINATES:
        for size in (3, 4, 16, 21):
            check_resize(
                device,
                random_array((1, 1, 8, 8)),
                sizes=[1, 1, size, 12],
                nearest_mode=rounding,
                mode="nearest",
                coordinate_transformation_mode=coordinates,
            )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_and_what_lies_outside(device, mode):
    for antialias, exclude in itertools.product((0, 1), (0, 1)):
        how = {"mode": mode, "antialias": antialias, "exclude_outside": exclude}
        check_resize(device, random_array((2, 3, 17, 13)), [1, 1, 0.4, 0.7], **how)
    check_resize(device, random_array((1, 1, 5, 6)), [1, 1, 2, 2], mode="cubic", cubic_coeff_a=-0.5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop(device, mode):
    roi = [0, 0, 0.2, -0.31, 1, 1, 0.9, 1.2]
    check_resize(
        device,
        random_array((1, 2, 7, 9)),
        sizes=[1, 2, 5, 6],
        roi=roi,
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.5,
    )


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_axes_and_aspect(device, policy):
    for axes in ([2, 3], [3, 2], [3], [1, 2, 3]):
        check_resize(
            device,
            random_array((2, 3, 6, 5)),
            sizes=[9, 8, 7][: len(axes)],
            axes=axes,
            mode="linear",
            keep_aspect_ratio_policy=policy,
        )


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 5), (2, 3, 5, 7, 3), (1, 2, 1, 3, 1, 4, 5)])
def test_ranks(device, shape):
    scales = [1.0 if axis % 3 == 1 else 1.5 for axis in range(len(shape))]
    for mode in ("nearest", "linear"):
        check_resize(device, random_array(shape), scales, mode=mode)


def make(device, x, sizes, **attributes):
    """Return what Resize makes of x."""
    proto, fed = one_node("Resize", [x, None, None, np.array(sizes)], [3], 19, **attributes)
    with vklab.load(proto, device) as session:
        return session.run(fed)["y0"]


def test_axes_from_the_end(device):
    x = random_array((2, 3, 4))
    np.testing.assert_array_equal(
        make(device, x, [7, 5], axes=[-1, -2]), make(device, x, [5, 7], axes=[1, 2])
    )


def test_bool(device):
    x = random_array((5, 4)) > 0
    np.testing.assert_array_equal(make(device, x, [10, 8]), x.repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.uint8, np.int8, np.int32, np.int64])
def test_dtypes(device, dtype):
    x = (random_array((1, 1, 6, 5)) * 100).astype(dtype)
    check_resize(device, x, [1, 1, 2, 1.5], mode="nearest")
    if dtype != np.int64:
        check_resize(device, x, [1, 1, 2, 1.5], mode="cubic")


def test_the_same_size_is_a_view(device):
    x = random_array((1, 2, 3, 4))
    np.testing.assert_array_equal(check_resize(device, x, [1, 1, 1, 1], mode="cubic"), x)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_older_opsets(device, mode):
    x, scales = random_array((1, 2, 5, 6)), np.array([1, 1, 2, 3], np.float32)
    check_operator(
        "Upsample", inputs=[x], device=device, opset=7, mode=mode, scales=[1.0, 1.0, 2.0, 3.0]
    )
    check_operator("Upsample", inputs=[x, scales], constants=[1], device=device, opset=9, mode=mode)
    down = np.array([1, 1, 0.6, 0.5], np.float32)
    for factors in (scales, down):
        check_operator(
            "Resize", inputs=[x, factors], constants=[1], device=device, opset=10, mode=mode
        )
        empty = np.zeros(0, np.float32)
        check_operator(
            "Resize",
            inputs=[x, empty, factors],
            constants=[1, 2],
            device=device,
            opset=11,
            mode=mode,
        )


@pytest.mark.parametrize("coordinates", [*COORDINATES, "tf_crop_and_resize"])
def test_sizes_and_elements_are_counted_in_float32(device, coordinates):
    """In float64, 0.7 times 10 is 6.9999999, and 3 / float32(1 / 3) is 2.9999999."""
    roi = np.array([0.2, 0.9], np.float32)
    for size, factor in itertools.product((10, 15, 49, 100), (1 / 3, 1 / 7, 0.29, 0.7, 1.2, 3.3)):
        scale = np.array([factor], np.float32)
        new_size = np.array([int(scale[0] * np.float32(size))])
        # ONNX Runtime gives align_corners by scales another length than ONNX's own cases.
        known = [scale] if coordinates != "align_corners" else [np.zeros(0, np.float32), new_size]
        inputs = [np.arange(size, dtype=np.float32), roi, *known]
        check_operator(
            "Resize",
            inputs=inputs,
            constants=list(range(1, len(inputs))),
            opset=11,
            device=device,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode=coordinates,
        )


def test_ties_are_halves_within_rounding(device):
    x = np.arange(20, dtype=np.float32)
    for rounding, wanted in (
        ("round_prefer_ceil", [1, 5, 8, 11, 15, 18]),
        ("round_prefer_floor", [1, 4, 8, 11, 14, 18]),
    ):
        assert make(device, x, [6], nearest_mode=rounding).tolist() == wanted


def test_no_elements(device):
    assert make(device, random_array((0, 2, 4)), [0, 2, 8]).shape == (0, 2, 8)


@pytest.mark.parametrize(("inputs", "attributes", "words"), [
    ({"scales": [1, 2]}, {}, "scales"), ({"scales": [1, 2, 0]}, {}, "above zero"),
    ({"sizes": [1, 2, -3]}, {}, "zero or more"), ({"sizes": [1, 2, 3]}, {"mode": "best"}, "mode"),
    ({"sizes": [2]}, {"axes": [5]}, "axis"), ({}, {}, "scales and sizes"),
    ({"sizes": [1, 2, 3]}, {"coordinate_transformation_mode": "tf_crop_and_resize"}, "roi"),
])  # fmt: skip
def test_what_cannot_be(device_index, inputs, attributes, words):
    scales, sizes = inputs.get("scales"), inputs.get("sizes")
    arrays = [
        random_array((1, 2, 3)),
        None,
        None if scales is None else np.float32(scales),
        None if sizes is None else np.int64(sizes),
    ]
    known = [i for i, array in enumerate(arrays) if i and array is not None]
    proto, _ = one_node("Resize", arrays, known, 19, **attributes)
    with pytest.raises(vklab.ModelError, match=words):
        vklab.load(proto, device_index)
