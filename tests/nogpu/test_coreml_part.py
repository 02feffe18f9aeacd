"""Parts of a Core ML program as packages: operations with their constants, fed the other values."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes import planted_defects
from support.models import coreml_written
from vklab.apps.compare.backend import Row
from vklab.apps.compare.coreml import inspect, part, program
from vklab.apps.compare.report import rows
from vklab.apps.compare.truth import oracle
from vklab.errors import ModelError
from vklab.runtime import host


@pytest.fixture
def whole(tmp_path):
    """Return a package of a linear layer and a ReLU."""
    return coreml_written.small_program().save(tmp_path)


def test_a_part_brings_its_constants_and_is_fed_the_rest(whole, tmp_path):
    graph = program.import_package(whole)
    linear = program.import_package(part.write(whole, ["y"], {"y"}, tmp_path / "y.mlpackage"))
    assert [str(info) for info in linear.inputs] == ["x: float32[2,5]"]
    assert linear.outputs == ("y",) and [node.op_type for node in linear.nodes] == ["Gemm"]
    for name in ("weight", "bias"):
        np.testing.assert_array_equal(
            linear.initializers[name].constant, graph.initializers[name].constant
        )
    relu = program.import_package(part.write(whole, ["z"], {"z"}, tmp_path / "z.mlpackage"))
    assert [str(info) for info in relu.inputs] == ["y: float32[2,3]"] and not relu.initializers
    both = part.write(whole, ["z"], {"y", "z"}, tmp_path / "z.mlpackage")  # replaces the other
    assert [info.name for info in program.import_package(both).inputs] == ["x"]
    facts = inspect.inspect(both)
    assert [(each.name, each.shape) for each in facts.inputs] == [("x", (2, 5))]
    assert facts.operators == {"linear": 1, "relu": 1}


def test_values_inside_an_operation_belong_to_it():
    assert [part.owner(name) for name in ("y", "y/Gemm_1", "y/constant_0")] == ["y"] * 3


def test_a_part_that_is_not_there_or_has_no_fixed_size_is_refused(whole, tmp_path):
    with pytest.raises(ModelError, match="has no operations conv"):
        part.write(whole, ["y"], {"conv"}, tmp_path / "part.mlpackage")
    made = coreml_written.small_program()
    made.function.inputs[0].type.tensorType.dimensions[0].unknown.SetInParent()
    with pytest.raises(ModelError, match="'x' has an open size"):
        part.write(made.save(tmp_path, "open.mlpackage"), ["y"], {"y"}, tmp_path / "p.mlpackage")
    assert not (tmp_path / "p.mlpackage").exists()


@pytest.mark.slow
def test_coremltools_reads_a_part(tmp_path):
    coremltools = pytest.importorskip("coremltools")
    whole = "data/packages/mini_classifier.mlpackage"
    graph = program.import_package(whole)
    name = next(node.outputs[0] for node in graph.nodes if node.op_type == "Conv")
    path = part.write(whole, [name], {part.owner(name)}, tmp_path / "conv.mlpackage")
    spec = coremltools.models.MLModel(str(path), skip_model_load=True).get_spec()
    assert [each.name for each in spec.description.output] == [name]
    assert spec.description.output[0].type.multiArrayType.dataType == 65552


class Wrong:
    """A stand-in for a backend that adds 1 to every rectified value."""

    def alone(self, model, inputs):
        """Return the outputs of a part."""
        relus = {
            name for node in model.graph.node for name in node.output if node.op_type == "Relu"
        }
        return {
            name: value + (name in relus)
            for name, value in planted_defects.single(model, inputs).items()
        }


def test_the_smallest_failing_part_of_a_package_is_a_package(whole, tmp_path):
    model = host.to_proto(program.import_package(whole))
    truth = oracle.of_graph(model, {"x": np.ones((2, 5), np.float32)})
    row = rows.Measured(
        Row("net", "device", planted_defects.SINGLE, "ran", passed=False, first_layer="z")
    )
    found = rows.with_part(row, model, truth, Wrong(), tmp_path / "parts", whole)
    assert [path.name for path in found.part] == [
        "net.onnx",
        "net.inputs.npz",
        "net.expected.npz",
        "net.mlpackage",
    ]
    assert inspect.inspect(found.part[-1]).operators == {"relu": 1}
    without = rows.with_part(row, model, truth, Wrong(), tmp_path / "parts")
    assert len(without.part) == 3
