"""Models of one operator on a large tensor, whose time is that of moving its bytes.

Their rows are compared by device time with the bytes that must move: "times the floor" is 1.25 at
80 % of the device's memory speed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vklab.errors import ModelError

# 256 MiB: 2^26 elements in float32, 2^27 in float16. The sides of the odd sizes are no multiples of
# anything.
MEMORY = (
    "add_65536x1024", "relu_65536x1024", "layer_norm_65536x1024", "softmax_65536x1024",
    "softmax_middle_65536x1024", "sum_rows_65536x1024", "max_rows_65536x1024",
    "arg_max_65536x1024", "sum_columns_65536x1024", "transpose_8192x8192", "swap_heads_65536x1024",
    "layer_norm_66001x1021", "softmax_66001x1021", "transpose_8191x8209",
    *(f"half_{kind}_131072x1024" for kind in (
        "add", "layer_norm", "softmax", "softmax_middle", "sum_rows", "max_rows", "arg_max",
        "sum_columns", "swap_heads")),
    "half_transpose_16384x8192",
)  # fmt: skip
NAME = re.compile(r"(half_)?([a-z]+(?:_[a-z]+)?)_(\d+)x(\d+)")
HEADS, IMAGES = 16, 64
Nodes = Sequence[onnx.NodeProto]


def _one(op_type: str, *inputs: str, **attributes: Any) -> Callable[[int], Nodes]:
    node = helper.make_node(op_type, inputs, ["y"], op_type.lower(), **attributes)
    return lambda columns: [node]


def _heads(columns: int) -> Nodes:
    """Return the nodes that put the heads of rows first, as attention does."""
    return [
        helper.make_node("Reshape", ["x", "split"], ["s"], "split"),
        helper.make_node("Transpose", ["s"], ["y"], "turn", perm=[1, 0, 2]),
    ]


def _middle(columns: int) -> Nodes:
    """Return the nodes of Softmax over the middle axis: of classes, in a batch of images."""
    return [
        helper.make_node("Reshape", ["x", "images"], ["s"], "images"),
        helper.make_node("Softmax", ["s"], ["y"], "softmax", axis=1),
    ]


# The nodes by name, and the shape of y.
KINDS: dict[str, tuple[Callable[[int], Nodes], Callable[[int, int], tuple[int, ...]]]] = {
    "add": (_one("Add", "x", "w"), lambda r, c: (r, c)),
    "relu": (_one("Relu", "x"), lambda r, c: (r, c)),
    "layer_norm": (_one("LayerNormalization", "x", "w", "b"), lambda r, c: (r, c)),
    "softmax": (_one("Softmax", "x"), lambda r, c: (r, c)),
    "softmax_middle": (_middle, lambda r, c: (IMAGES, r // IMAGES, c)),
    "arg_max": (_one("ArgMax", "x", axis=1, keepdims=0), lambda r, c: (r,)),
    "sum_rows": (_one("ReduceSum", "x", "last", keepdims=0), lambda r, c: (r,)),
    "max_rows": (_one("ReduceMax", "x", "last", keepdims=0), lambda r, c: (r,)),
    "sum_columns": (_one("ReduceSum", "x", "first", keepdims=0), lambda r, c: (c,)),
    "transpose": (_one("Transpose", "x", perm=[1, 0]), lambda r, c: (c, r)),
    "swap_heads": (_heads, lambda r, c: (HEADS, r, c // HEADS)),
}


def is_one(name: str) -> bool:
    """Tell whether a name is that of an operator on rows and columns."""
    match = NAME.fullmatch(name)
    return match is not None and match[2] in KINDS


def build(name: str) -> onnx.ModelProto | None:
    """Build KIND_ROWSxCOLUMNS, or half_KIND_ROWSxCOLUMNS in float16; None for another name."""
    match = NAME.fullmatch(name)
    if not match or match[2] not in KINDS:
        return None
    kind, rows, columns = match[2], int(match[3]), int(match[4])
    side, parts = {"swap_heads": (columns, HEADS), "softmax_middle": (rows, IMAGES)}.get(
        kind, (0, 1)
    )
    if not rows or not columns or side % parts:
        raise ModelError(
            f"{name!r}: sizes are at least 1, {HEADS} heads divide the columns, and "
            f"{IMAGES} images the rows"
        )
    nodes, shape = KINDS[kind]
    dtype, real = (np.float16, TensorProto.FLOAT16) if match[1] else (np.float32, TensorProto.FLOAT)
    random = np.random.default_rng(0)
    tensors = {
        "w": random.standard_normal(columns, np.float32).astype(dtype),
        "b": np.zeros(columns, dtype),
        "first": np.array([0]),
        "last": np.array([1]),
        "split": np.array([rows, HEADS, columns // HEADS]),
        "images": np.array([IMAGES, rows // IMAGES, columns]),
    }
    listed = nodes(columns)
    used = {value for node in listed for value in node.input}
    made = TensorProto.INT64 if kind == "arg_max" else real
    graph = helper.make_graph(
        listed,
        name,
        [helper.make_tensor_value_info("x", real, (rows, columns))],
        [helper.make_tensor_value_info("y", made, shape(rows, columns))],
        [numpy_helper.from_array(array, key) for key, array in tensors.items() if key in used],
    )
    return helper.make_model(
        graph,
        ir_version=8,
        producer_name="vklab.apps.compare.models.memory",
        opset_imports=[helper.make_opsetid("", 18)],
    )
