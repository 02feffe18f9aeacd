"""Models of one operator on a large tensor, whose time is that of moving its bytes.

Their rows are compared by device time with the bytes that must move: "times the floor" is 1.25 at
80 % of the device's memory speed. Visited by lab 19.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vklab.errors import ModelError

__all__ = ["MEMORY", "build", "is_one"]

# 2^26 elements: 256 MiB in float32. The sides of the odd sizes are no multiples of anything.
MEMORY = (
    "add_65536x1024", "relu_65536x1024", "layer_norm_65536x1024", "softmax_65536x1024",
    "sum_rows_65536x1024", "max_rows_65536x1024", "sum_columns_65536x1024",
    "transpose_8192x8192", "swap_heads_65536x1024",
    "layer_norm_66001x1021", "softmax_66001x1021", "transpose_8191x8209",
)  # fmt: skip
NAME = re.compile(r"([a-z]+(?:_[a-z]+)?)_(\d+)x(\d+)")
HEADS = 16
Nodes = Sequence[onnx.NodeProto]


def _one(op_type: str, *inputs: str, **attributes: Any) -> Callable[[int], Nodes]:
    node = helper.make_node(op_type, inputs, ["y"], op_type.lower(), **attributes)
    return lambda columns: [node]


def _heads(columns: int) -> Nodes:
    """Return the nodes that put the heads of rows first, as attention does."""
    return [helper.make_node("Reshape", ["x", "split"], ["s"], "split"),
            helper.make_node("Transpose", ["s"], ["y"], "turn", perm=[1, 0, 2])]  # fmt: skip


# The nodes by name, and the shape of y.
KINDS: dict[str, tuple[Callable[[int], Nodes], Callable[[int, int], tuple[int, ...]]]] = {
    "add": (_one("Add", "x", "w"), lambda r, c: (r, c)),
    "relu": (_one("Relu", "x"), lambda r, c: (r, c)),
    "layer_norm": (_one("LayerNormalization", "x", "w", "b"), lambda r, c: (r, c)),
    "softmax": (_one("Softmax", "x"), lambda r, c: (r, c)),
    "sum_rows": (_one("ReduceSum", "x", "last", keepdims=0), lambda r, c: (r,)),
    "max_rows": (_one("ReduceMax", "x", "last", keepdims=0), lambda r, c: (r,)),
    "sum_columns": (_one("ReduceSum", "x", "first", keepdims=0), lambda r, c: (c,)),
    "transpose": (_one("Transpose", "x", perm=[1, 0]), lambda r, c: (c, r)),
    "swap_heads": (_heads, lambda r, c: (HEADS, r, c // HEADS)),
}


def is_one(name: str) -> bool:
    """Tell whether a name is that of an operator on rows and columns."""
    match = NAME.fullmatch(name)
    return match is not None and match[1] in KINDS


def build(name: str) -> onnx.ModelProto | None:
    """Build KIND_ROWSxCOLUMNS; None for another name."""
    match = NAME.fullmatch(name)
    if not match or match[1] not in KINDS:
        return None
    rows, columns = int(match[2]), int(match[3])
    if not rows or not columns or (match[1] == "swap_heads" and columns % HEADS):
        raise ModelError(f"{name!r}: sizes are at least 1, and {HEADS} heads divide the columns")
    nodes, shape = KINDS[match[1]]
    random = np.random.default_rng(0)
    tensors = {
        "w": random.standard_normal(columns, np.float32), "b": np.zeros(columns, np.float32),
        "first": np.array([0]), "last": np.array([1]),
        "split": np.array([rows, HEADS, columns // HEADS]),
    }  # fmt: skip
    listed = nodes(columns)
    used = {value for node in listed for value in node.input}
    graph = helper.make_graph(
        listed, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, columns))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape(rows, columns))],
        [numpy_helper.from_array(array, key) for key, array in tensors.items() if key in used],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, producer_name="vklab.bench.memory",
                             opset_imports=[helper.make_opsetid("", 18)])  # fmt: skip
