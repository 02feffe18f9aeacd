"""Conv against ONNX Runtime: groups, strides, dilations, pads, auto_pad, 1-D, sizes round tiles."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.checks.check_operator import check_operator
from support.graphs.small_models import one_node, random_array
from vklab.types import DeviceInfo


@pytest.fixture(params=["as-it-is", "as-gpu", "plain"], autouse=True)
def choice(request, monkeypatch):
    """Try the kernels that the device gets, those that a GPU gets, and those right everywhere."""
    if request.param == "as-gpu":
        monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    if request.param == "plain":
        monkeypatch.setenv("VKLAB_DISABLE_VARIANTS", "1")


CASES = {
    "1x1": ([(1, 3, 5, 7), (4, 3, 1, 1)], {}),
    "3x3-padded": ([(2, 3, 7, 5), (4, 3, 3, 3), (4,)], {"pads": [1, 1, 1, 1]}),
    "asymmetric-pads": ([(1, 2, 5, 6), (3, 2, 3, 2)], {"pads": [0, 1, 2, 3]}),
    "strides": ([(1, 2, 11, 13), (3, 2, 3, 3)], {"strides": [2, 3]}),
    "dilations": ([(1, 2, 11, 13), (3, 2, 3, 3)], {"dilations": [2, 3]}),
    "all-at-once": (
        [(2, 4, 13, 11), (6, 2, 3, 2), (6,)],
        {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]},
    ),
    "groups": ([(1, 6, 5, 5), (9, 2, 3, 3)], {"group": 3}),
    "depthwise": ([(2, 17, 7, 7), (17, 1, 3, 3), (17,)], {"group": 17, "pads": [1] * 4}),
    "depthwise-multiplied": ([(1, 3, 7, 7), (6, 1, 3, 3)], {"group": 3}),
    "same-upper": ([(1, 2, 7, 8), (3, 2, 4, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same-lower": ([(1, 2, 7, 8), (3, 2, 4, 2)], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "valid": ([(1, 2, 7, 8), (3, 2, 3, 2)], {"auto_pad": "VALID"}),
    "kernel-as-large-as-image": ([(1, 5, 7, 3), (4, 5, 7, 3)], {}),
    "kernel-larger-than-image": ([(1, 1, 2, 2), (1, 1, 3, 3)], {"pads": [1] * 4}),
    "1-d": ([(2, 3, 17), (5, 3, 4), (5,)], {"strides": [2], "pads": [1, 2], "dilations": [2]}),
    "1-d-groups": ([(1, 4, 9), (4, 2, 3)], {"group": 2}),
    "one-pixel": ([(1, 1, 1, 1), (1, 1, 1, 1)], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_conv(device, case):
    shapes, attributes = CASES[case]
    check_operator("Conv", shapes, device=device, **attributes)
    constants = range(1, len(shapes))
    check_operator("Conv", shapes, device=device, constants=constants, **attributes)


@pytest.mark.parametrize("filters", [1, 31, 33, 65])
def test_conv_around_tiles(device, filters):
    for depth, size in [(1, 4), (2, 6), (7, 8), (17, 3)]:
        shapes = [(1, depth, size, size + 1), (filters, depth, 3, 3), (filters,)]
        check_operator("Conv", shapes, device=device, pads=[1, 1, 1, 1])


@pytest.mark.full
@pytest.mark.parametrize("shapes", [
    [(1, 61, 29, 31), (67, 61, 3, 3), (67,)], [(3, 16, 28, 28), (129, 16, 3, 3)],
    [(1, 127, 14, 14), (31, 127, 1, 1)], [(5, 3, 33, 31), (7, 3, 7, 5), (7,)],
])  # fmt: skip
def test_conv_of_large_primes(device, shapes):
    pads = [shapes[1][2] // 2, shapes[1][3] // 2] * 2
    check_operator("Conv", shapes, device=device, constants=[1], pads=pads)


@pytest.mark.parametrize("shapes", [
    [(0, 3, 5, 5), (4, 3, 3, 3)], [(1, 3, 5, 5), (0, 3, 3, 3)],
])  # fmt: skip
def test_conv_without_elements(device, shapes):
    # ONNX Runtime refuses filters of no channels, so the shape is all there is to compare.
    proto, fed = one_node("Conv", [random_array(s) for s in shapes])
    with vklab.load(proto, device) as session:
        assert session.run(fed)["y0"].shape == (shapes[0][0], shapes[1][0], 3, 3)


def test_nan_and_infinity_stay_in_the_windows_that_see_them(device):
    x = random_array((1, 2, 9, 9))
    x[0, 0, 4, 4], x[0, 1, 0, 0] = np.nan, np.inf
    y = check_operator(
        "Conv", inputs=[x, random_array((3, 2, 3, 3), 1)], device=device, pads=[1] * 4
    )
    assert np.isnan(y).sum() == 3 * 9
