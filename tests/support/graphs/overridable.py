"""A model whose initializers are inputs too, of every kind that planning uses, and overrides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from support.graphs.small_models import model, random_array, value

NODE = helper.make_node
OVERRIDES = {
    "w": random_array((5, 6), 7),
    "b": random_array((1,), 8),  # declared with a name: another size than the default's
    "shape": np.array([2, -1], np.int64),  # decides a shape
    "flag": np.array(False),  # decides the branch of an If
    "scale": random_array((6,), 9),  # read in a branch only
}


def network(ir_version: int = 8, opset: int = 17) -> onnx.ModelProto:
    """Return a model that reads its weights, a shape and a condition from overridable inputs."""
    then = helper.make_graph(
        [NODE("Mul", ["y", "scale"], ["t"], "mul")], "then", [], [onnx.ValueInfoProto(name="t")]
    )
    other = helper.make_graph(
        [NODE("Sub", ["y", "scale"], ["e"], "sub")], "other", [], [onnx.ValueInfoProto(name="e")]
    )
    nodes = [
        NODE("Relu", ["v"], ["positive"], "fold"),  # a constant unless `v` is overridden
        NODE("MatMul", ["x", "w"], ["m"], "matmul"),
        NODE("Add", ["m", "b"], ["a"], "add"),
        NODE("Add", ["a", "positive"], ["y"], "shift"),
        NODE("If", ["flag"], ["z"], "if", then_branch=then, else_branch=other),
        NODE("Reshape", ["z", "shape"], ["r"], "reshape"),
        NODE("Identity", ["fixed"], ["kept"], "keep"),
    ]
    constants = {
        "w": random_array((5, 6)),
        "b": random_array((6,)),
        "v": random_array((6,), 3),
        "shape": np.array([-1, 3], np.int64),
        "flag": np.array(True),
        "scale": random_array((6,), 4),
        "fixed": random_array((2,), 5),
    }
    inputs = [
        value("x", ("batch", 5)),
        value("w", (5, 6)),
        value("b", ("bias",)),
        value("v", (6,)),
        value("shape", (2,), TensorProto.INT64),
        value("flag", (), TensorProto.BOOL),
        value("scale", (6,)),
    ]
    proto = model(nodes, inputs, ["y", "r", "v", "kept"], constants, opset)
    proto.ir_version = ir_version
    return proto


def feeds(batch: int = 4) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs without an override, with each alone, with each pair, with all, and without."""
    x = random_array((batch, 5), 1)
    yield {"x": x}
    for count in (1, 2, len(OVERRIDES)):
        for names in itertools.combinations(OVERRIDES, count):
            yield {"x": x, **{name: OVERRIDES[name] for name in names}}
    yield {"v": random_array((6,), 11), "x": x}
    yield {"x": x}


def reference(proto: onnx.ModelProto) -> Any:
    """Return a function that runs a model in ONNX Runtime, outputs by name.

    ONNX Runtime overrides nothing in models of IR version 3, so a copy has a later one.
    """
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    proto.ir_version = max(proto.ir_version, 4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_outputs()]

    def run(fed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, dict(fed)), strict=True))

    run.names = [each.name for each in session.get_overridable_initializers()]  # type: ignore
    return run


def require_close(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Check outputs by name, in order."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
