"""Dimensions of a model's inputs that no exporter has fixed, in every spelling."""

from __future__ import annotations

import pytest
from onnx import helper

from support.graphs.small_models import model, value
from vklab.graph import onnx_import


@pytest.mark.parametrize("edit", [
    "dim.Clear()", "dim.dim_param = ''", "dim.dim_value = -1", "dim.dim_param = '?'",
    "dim.dim_param = 'None'", "dim.dim_param = 'unk__7'", "dim.dim_param = 'unknown'",
    "dim.dim_param = '*'", "dim.dim_param = '-1'",
])  # fmt: skip
def test_a_dimension_that_the_exporter_does_not_know_is_open_and_like_no_other(edit):
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ("n", 2, "n"))], "y")
    for axis in (0, 2):
        exec(edit, {"dim": proto.graph.input[0].type.tensor_type.shape.dim[axis]})
    assert onnx_import.load_graph(proto).inputs[0].shape == ("x.0", 2, "x.2")


@pytest.mark.parametrize("name", ["batch", "N", "unknown_length", "None_0", "s0"])
def test_a_dimension_that_has_a_name_keeps_it(name):
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", (name, 2, name))], "y")
    assert onnx_import.load_graph(proto).inputs[0].shape == (name, 2, name)
