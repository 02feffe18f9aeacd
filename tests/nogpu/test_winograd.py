"""Which 3 x 3 convolutions a GPU computes in Winograd's tiles, by the model of their times."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes.matrix_gpu import NVIDIA
from vklab import settings
from vklab.base.names import internal
from vklab.ops import registry
from vklab.plan.tuning.products import winograd
from vklab.types import TensorInfo


def parts(channels, filters, size, batch=1):
    weight = TensorInfo(
        "w", "float32", (3, 3, channels, filters), np.zeros((3, 3, channels, filters), np.float32)
    )
    image = TensorInfo("x", "float32", (batch, size, size, channels))
    given = {"group": 1, "pads": (1,) * 4, "strides": (1, 1), "dilations": (1, 1)}
    made = registry.apply("ChannelsLastConv", [image, weight], given, 1, "vklab")
    return winograd.parts(*made.dispatches, NVIDIA)


# Channels, filters and pixels of a side whose times were measured, and which were shorter.
MEASURED = [
    (64, 64, 56, False),
    (128, 128, 28, False),
    (256, 256, 28, True),
    (256, 256, 14, False),
    (512, 512, 14, True),
    (512, 512, 7, False),
    (768, 512, 14, True),
    (16, 512, 14, False),
]


@pytest.mark.parametrize(("channels", "filters", "size", "faster"), MEASURED)
def test_a_gpu_takes_what_was_measured_to_be_faster(channels, filters, size, faster):
    made = parts(channels, filters, size)
    assert (len(made) == 3) == faster
    if faster:
        assert {each.define_values.get("SIDE", "2") for each in made} == {"2"}


def test_more_images_gain_more():
    assert len(parts(256, 256, 14)) == 1 and len(parts(256, 256, 14, batch=8)) == 3


@pytest.mark.parametrize(("side", "points"), [(2, 16), (4, 36)])
def test_a_forced_tile_is_taken_everywhere(side, points):
    with settings.settings(VARIANT=f"winograd {side}x{side}x3"):
        before, product, _ = parts(16, 16, 8)
    assert before.writes[0][1].dims == (points, (8 // side) ** 2, 16)
    assert product.reads[1][1].name == internal("w", f"winograd{side} last")
    with settings.settings(VARIANT="winograd 3x3x3"):
        assert len(parts(16, 16, 8)) == 1
