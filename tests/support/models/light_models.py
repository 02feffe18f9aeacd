"""The nine light CNNs of the onnx wheel with random weights; their own are one constant each.

A constant proves nothing: every sum of a layer is the same number, wherever a kernel reads. The
weights made here are He-initialised by a fixed seed, and running statistics are those of a
trained net: means near 0, variances near 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx.numpy_helper import from_array, to_array

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("*.onnx"))
# One of residual groups and shuffles, one of concatenations: the smallest two.
SMALL = ["shufflenet", "squeezenet"]
# What stands between a weight and the node that it serves.
PASSING = ("Unsqueeze", "Reshape")


def models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the name and the model of every light CNN."""
    for name in NAMES:
        yield name, build(name)


def build(name: str, seed: int = 0) -> onnx.ModelProto:
    """Return a light CNN whose weights are random: initializers, no ConstantOfShape is left."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    known = {tensor.name: to_array(tensor) for tensor in graph.initializer}
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    shapes = {node.output[0]: tuple(known[node.input[0]].tolist()) for node in made}
    shapes |= {n: array.shape for n, array in known.items() if array.dtype == np.float32}
    integers = [tensor for tensor in graph.initializer if tensor.name not in shapes]
    roles = _roles(graph.node)
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    inputs = [i for i in graph.input if i.name not in known]
    for field, kept in ((graph.node, nodes), (graph.initializer, integers), (graph.input, inputs)):
        del field[:]
        field.extend(kept)
    for weight, shape in shapes.items():
        random = np.random.default_rng([seed, zlib.crc32(weight.encode())])
        array = _values(random, roles.get(weight, ("", 0)), shape)
        graph.initializer.append(from_array(array, weight))
    model.ir_version = 8  # initializers need not be inputs
    return model


def _roles(nodes: Sequence[onnx.NodeProto]) -> dict[str, tuple[str, int]]:
    """Return for each value the operator that it serves, and as which input.

    A normalization before a sum is one of its own, "BatchNormalization+Sum".
    """
    roles: dict[str, tuple[str, int]] = {}
    for node in reversed(nodes):
        role, _ = behind = roles.get(node.output[0], ("", 0))
        suffix = "+Sum" if node.op_type == "BatchNormalization" and role == "Sum" else ""
        for number, name in enumerate(node.input):
            passes = node.op_type in PASSING and number == 0
            roles[name] = behind if passes else (node.op_type + suffix, number)
    return roles


def _values(
    random: np.random.Generator, role: tuple[str, int], shape: tuple[int, ...]
) -> np.ndarray:
    """Return random values that suit a weight: a kernel, a factor, a variance, or a bias."""
    if len(shape) > 1:
        gain = 2.0 / float(np.prod(shape[1:]))
        return random.standard_normal(shape, np.float32) * np.float32(np.sqrt(gain))
    if role == ("BatchNormalization+Sum", 1):  # else each residual block doubles the variance
        return random.uniform(0.3, 0.7, shape).astype(np.float32)
    if role[0].startswith("BatchNormalization") and role[1] in (1, 4) or role == ("Mul", 1):
        return random.uniform(0.7, 1.3, shape).astype(np.float32)
    return random.standard_normal(shape, np.float32) * np.float32(0.1)
