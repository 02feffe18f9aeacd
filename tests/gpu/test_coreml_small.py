"""A Core ML program written by hand, loaded as a Graph: runs, checks and open dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.models import coreml_written
from vklab import settings
from vklab.apps.compare import vulkan
from vklab.apps.compare.backend import ModelSource, Refused
from vklab.apps.compare.coreml import inspect, on_vulkan, program


def test_a_program_runs_and_is_checked_node_by_node(device, tmp_path):
    graph = program.import_package(coreml_written.small_program().save(tmp_path))
    x = np.random.default_rng(1).standard_normal((2, 5), np.float32)
    with settings.settings(CHECK="nodes"), vklab.load(graph, device) as session:
        result = session.run({"x": x})["z"]
    weight, bias = (graph.initializers[name].constant for name in ("weight", "bias"))
    np.testing.assert_allclose(result, np.maximum(x @ weight.T + bias, 0), rtol=1e-5, atol=1e-6)


def test_open_dimensions_stay_open(device_index, tmp_path):
    made = coreml_written.small_program()
    for kind in (made.function.inputs[0].type, *(o.outputs[0].type for o in made.block.operations)):
        if kind.tensorType.rank == 2 and kind.tensorType.dimensions[0].constant.size == 2:
            kind.tensorType.dimensions[0].unknown.SetInParent()
    graph = program.import_package(made.save(tmp_path))
    assert [str(info) for info in graph.inputs] == ["x: float32[x.0,5]"]
    x = np.random.default_rng(1).standard_normal((7, 5), np.float32)
    weight, bias = (graph.initializers[name].constant for name in ("weight", "bias"))
    with vklab.load(graph, device_index) as session:
        for count in (1, 7):
            wanted = np.maximum(x[:count] @ weight.T + bias, 0)
            np.testing.assert_allclose(
                session.run({"x": x[:count]})["z"], wanted, rtol=1e-5, atol=1e-6
            )


def counting_program():
    """Return a program that adds to each row of x its number, divided by 2 and rounded down."""
    made = coreml_written.WrittenProgram()
    made.input("x", "float32", (9, 3))
    made.operation("shape", "shape", "int32", (2,), {"x": "x"})
    made.operation(
        "gather", "count", "int32", (), {"x": "shape", "indices": np.int32(0), "axis": np.int32(0)}
    )
    made.operation(
        "range_1d",
        "numbers",
        "int32",
        (9,),
        {"start": np.int32(0), "end": "count", "step": np.int32(1)},
    )
    made.operation("floor_div", "halves", "int32", (9,), {"x": "numbers", "y": np.int32(2)})
    made.operation("cast", "floats", "float32", (9,), {"x": "halves", "dtype": "fp32"})
    made.operation(
        "expand_dims", "column", "float32", (9, 1), {"x": "floats", "axes": np.int32([1])}
    )
    made.operation("add", "y", "float32", (9, 3), {"x": "x", "y": "column"})
    made.outputs("y")
    for kind in (made.function.inputs[0].type, *(o.outputs[0].type for o in made.block.operations)):
        for dim in kind.tensorType.dimensions:
            if dim.constant.size == 9:
                dim.unknown.SetInParent()
    described = made.model.description.input.add(name="x").type.multiArrayType
    described.shape.extend((9, 3))
    for low, high in ((2, 9), (3, 3)):
        described.shapeRange.sizeRanges.add(lowerBound=low, upperBound=high)
    return made


def test_sizes_that_a_run_gives_are_computed_with(device_index, tmp_path):
    path = counting_program().save(tmp_path)
    loaded = on_vulkan.CoreMLProgram(vulkan.Vulkan(device_index, "device"), "float32").prepare(
        ModelSource("net", package=path)
    )
    for count in (2, 5, 9):
        x = np.random.default_rng(count).standard_normal((count, 3), np.float32)
        wanted = x + (np.arange(count) // 2)[:, None].astype(np.float32)
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], wanted)
    with pytest.raises(Refused, match=r"has shape \[10, 3\]; the package allows \[2..9, 3\]"):
        loaded.run({"x": np.zeros((10, 3), np.float32)})
    loaded.close()


def test_listed_shapes_are_the_only_ones(tmp_path):
    made = counting_program()
    array = made.model.description.input[0].type.multiArrayType
    array.ClearField("shapeRange")
    for rows in (4, 7):
        array.enumeratedShapes.shapes.add(shape=(rows, 3))
    allowed = inspect.limits(made.save(tmp_path))["x"]
    assert [inspect.allows(allowed, (rows, 3)) for rows in (4, 5, 7)] == [True, False, True]
    assert not inspect.allows(allowed, (4,))
    assert inspect.allows([((1, -1),)], (10**6,))
    assert inspect.limits(coreml_written.small_program().save(tmp_path, "b.mlpackage")) == {}
