"""GridSample, AffineGrid and pooled regions against ONNX Runtime: modes, paddings, odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node, random_array


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample(device, mode, padding, align):
    x, grid = random_array((2, 3, 5, 7)), random_array((2, 4, 3, 2), 1) * 1.5
    how = {"padding_mode": padding, "align_corners": align}
    check_operator("GridSample", inputs=[x, grid], device=device, opset=20, mode=mode, **how)
    older = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    check_operator("GridSample", inputs=[x, grid], device=device, opset=16, mode=older, **how)
    if mode != "cubic":
        x, grid = random_array((1, 2, 3, 5, 4)), random_array((1, 2, 3, 4, 3), 1)
        check_operator("GridSample", inputs=[x, grid], device=device, opset=20, mode=mode, **how)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids_of_no_numbers(device, padding):
    x, grid = random_array((1, 1, 4, 4)), np.full((1, 2, 2, 2), np.nan, np.float32)
    grid[0, 0], grid[0, 1] = np.inf, -1e30
    proto, fed = one_node("GridSample", [x, grid], opset=20, padding_mode=padding)
    with vklab.load(proto, device) as session:
        made = session.run(fed)["y0"]
    assert np.isfinite(made).all() and (padding != "zeros" or not made.any())


def test_grid_sample_of_float16(device):
    x, grid = (random_array(s).astype(np.float16) for s in [(1, 2, 5, 6), (1, 3, 4, 2)])
    proto, fed = one_node("GridSample", [x, grid], opset=20)
    wide, doubled = one_node("GridSample", [x.astype(float), grid.astype(float)], opset=20)
    with vklab.load(proto, device) as session, vklab.load(wide, device) as precise:
        np.testing.assert_allclose(
            session.run(fed)["y0"], precise.run(doubled)["y0"], rtol=2e-3, atol=2e-3
        )


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 5, 7), (2, 1, 3, 4, 5)])
def test_affine_grid(device, size, align):
    axes = len(size) - 2
    inputs = [random_array((2, axes, axes + 1)), np.array(size, np.int64)]
    check_operator(
        "AffineGrid", inputs=inputs, constants=[1], device=device, opset=20, align_corners=align
    )


REGIONS = np.array(
    [[0.3, 1.2, 6.1, 7.4], [2, 2, 3, 3], [-3, 1, 4, 20], [5, 6, 5, 6], [8, 8, 2, 2]], np.float32
)


@pytest.mark.parametrize("half", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(device, mode, samples, half):
    images = np.array([0, 1, 1, 0, 1], np.int64)
    # ONNX Runtime and the standard differ on regions turned inside out and on maxima outside.
    regions = REGIONS[:4] if samples else REGIONS[:2]
    inputs = [np.abs(random_array((2, 3, 9, 11))), regions, images[: len(regions)]]
    how = {"mode": mode, "sampling_ratio": samples, "output_height": 3, "output_width": 2}
    proto, fed = one_node(
        "RoiAlign", inputs, (), 16, coordinate_transformation_mode=half, spatial_scale=0.9, **how
    )
    expected = ReferenceEvaluator(proto).run(None, fed)[0]
    with vklab.load(proto, device) as session:
        np.testing.assert_allclose(session.run(fed)["y0"], expected, rtol=1e-4, atol=1e-5)
    if mode == "avg":
        check_operator("RoiAlign", inputs=inputs, device=device, opset=10, **how)


def test_max_roi_pool(device):
    images = np.array([[0], [1], [1], [0], [1]], np.float32)
    inputs = [random_array((2, 3, 9, 11)), np.hstack([images, REGIONS])]
    for shape in ([1, 1], [2, 3], [7, 5]):
        check_operator(
            "MaxRoiPool", inputs=inputs, device=device, pooled_shape=shape, spatial_scale=0.8
        )


def test_no_regions(device):
    inputs = [random_array((1, 3, 5, 5)), np.zeros((0, 4), np.float32), np.zeros(0, np.int64)]
    proto, fed = one_node("RoiAlign", inputs, output_height=2, output_width=2)
    with vklab.load(proto, device) as session:
        assert session.run(fed)["y0"].shape == (0, 3, 2, 2)


def test_a_number_of_samples_without_end(device_index):
    inputs = [random_array((1, 3, 5, 5)), np.zeros((1, 4), np.float32), np.zeros(1, np.int64)]
    proto, _ = one_node("RoiAlign", inputs, sampling_ratio=100_003)
    with pytest.raises(vklab.ModelError, match="sampling_ratio=100003, squared"):
        vklab.load(proto, device_index)


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "words"), [
    ("GridSample", [(1, 1, 4, 4), (2, 1, 1, 2)], {}, "does not fit"),
    ("GridSample", [(1, 1, 4, 4), (1, 1, 1, 2)], {"mode": "best"}, "mode"),
    ("MaxRoiPool", [(1, 1, 4, 4), (1, 4)], {"pooled_shape": [2, 2]}, "rois"),
    ("MaxRoiPool", [(1, 1, 4, 4), (1, 5)], {"pooled_shape": [0, 2]}, "bins"),
])  # fmt: skip
def test_what_cannot_be(device_index, op_type, shapes, attributes, words):
    proto, _ = one_node(op_type, [random_array(shape) for shape in shapes], (), 20, **attributes)
    with pytest.raises(vklab.ModelError, match=words):
        vklab.load(proto, device_index)
