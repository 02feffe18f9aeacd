"""Kernels without tiles: the lanes that share loads lie in one subgroup, however tall a product."""

from __future__ import annotations

import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, random_array, value
from support.models.planned import plan_graph
from vklab.graph import onnx_import, shapes
from vklab.ops import linear


def product(rows, kernel):
    """Return a model of a product with many rows, or of a convolution with many filters."""
    if kernel == "matmul":
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        return model([node], [value("x", (rows, 2))], ["y"], {"w": random_array((2, 3))})
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    weight = random_array((rows, 2, 2, 1))
    return model([node], [value("x", (1, 2, 4, 4))], ["y"], {"w": weight})


@pytest.mark.parametrize("kernel", ["matmul", "conv"])
def test_lanes_that_share_loads_are_of_one_subgroup(kernel):
    info = fake_device(type="cpu")
    for rows in (8, 8 * linear.MOST_GROUPS, 8 * linear.MOST_GROUPS + 1, 1_200_007):
        graph = shapes.infer(onnx_import.load_graph(product(rows, kernel)))
        (dispatch,) = plan_graph(graph, info).dispatches
        constants = dispatch.constant_values
        assert dispatch.kernel == kernel and dispatch.define_values["SUBGROUP"] == "1"
        assert constants["LANES"] <= info.subgroup_size == 4
        groups = dispatch.workgroups[1]
        assert groups <= linear.MOST_GROUPS
        assert groups * constants["LANES"] * constants["BLOCKS"] >= rows
