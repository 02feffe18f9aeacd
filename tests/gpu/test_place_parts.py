"""Values made where a Concat puts them are what they are when they are copied there."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, value
from vklab import settings


def dense_block(channels: int, layers: int, batch: int):
    """Return convolutions that each read all before them, and what feeds them."""
    nodes, constants, size = [helper.make_node("Relu", ["x"], ["a0"])], {}, channels
    for n in range(layers):
        constants[f"w{n}"] = random_array((channels, size, 3, 3), n) / (3 * size)
        nodes += [
            helper.make_node("Sigmoid", [f"a{n}"], [f"s{n}"]),
            helper.make_node("Conv", [f"s{n}", f"w{n}"], [f"c{n}"], pads=[1] * 4),
            helper.make_node("Concat", [f"a{n}", f"c{n}"], [f"a{n + 1}"], axis=1),
        ]
        size += channels
    nodes.append(helper.make_node("GlobalAveragePool", [f"a{layers}"], ["p"]))
    nodes.append(helper.make_node("MaxPool", [f"a{layers}"], ["y"], kernel_shape=[2, 2]))
    fed = {"x": random_array((batch, channels, 8, 8))}
    return model(nodes, [value("x", fed["x"].shape)], ["y", "p"], constants), fed


@pytest.mark.parametrize("more", [{}, {"DISABLE_ALIASING": True}, {"DISABLE_IN_PLACE": True}])
@pytest.mark.parametrize(("batch", "fewer"), [(1, 4), (2, 0)])
def test_a_dense_block(device_index, batch, fewer, more):
    made, fed = dense_block(4, 4, batch)
    found = []
    for off in ("place_parts", ""):
        with settings.settings(DISABLE_PASSES=off, **more), vklab.load(made, device_index) as s:
            found.append((s.run(fed), s.run(fed), len(s.plan.dispatches), s.plan.memory))
            assert s.check(fed).passed
    (apart, _, many, before), (placed, again, few, after) = found
    assert many - few == fewer and after.arena_bytes <= before.arena_bytes
    for name, expected in apart.items():
        np.testing.assert_array_equal(placed[name], expected)
        np.testing.assert_array_equal(again[name], expected)
