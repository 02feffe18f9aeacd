"""Products and devices that are not there, for tests of choices that were measured or forced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from support.fakes.fake_device import fake_device
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.runtime.observe.tuned import MeasuredChoice
from vklab.types import CooperativeMatrix, TensorInfo

GPU = fake_device({"maxComputeSharedMemorySize": 49152}, subgroup_size=32)
HALVES = replace(
    GPU,
    cooperative_matrices=(
        CooperativeMatrix(16, 16, 16, "float16", "float16", "float32", "float32"),
    ),
)
CPU = fake_device(type="cpu")


class Asked(dict):
    """Choices that note which classes a plan asks for."""

    def __bool__(self) -> bool:
        return True

    def get(self, problem, default=None):
        self[problem] = problem
        return default


def product(m=512, k=1024, n=256, dtype="float32") -> Graph:
    weight = np.zeros((k, n), dtype)
    weights = {"w": TensorInfo("w", dtype, weight.shape, weight)}
    nodes = (Node("p", "MatMul", ("x", "w"), ("h",), {}), Node("r", "Relu", ("h",), ("y",), {}))
    x = TensorInfo("x", dtype, (m, k))
    return shapes.infer(Graph("g", 17, nodes, (x,), ("y",), weights))


def convolution(dtype="float32") -> Graph:
    weight = np.zeros((64, 32, 3, 3), dtype)
    weights = {"w": TensorInfo("w", dtype, weight.shape, weight)}
    node = Node("c", "Conv", ("x", "w"), ("y",), {"pads": (1,) * 4})
    return shapes.infer(
        Graph("g", 17, (node,), (TensorInfo("x", dtype, (1, 32, 28, 28)),), ("y",), weights)
    )


ENTRY = MeasuredChoice(
    "matmul float 512x256x1024x1 kn8",
    ("tiled", (64, 64, 16, 8, 8), 2),
    ("matmul", "matmul_tiled"),
    3000.0,
    2000.0,
)
