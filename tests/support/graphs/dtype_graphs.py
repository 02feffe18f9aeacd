"""Small graphs through which a value of any dtype passes, with what they must return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.graphs.small_models import value
from vklab.ops.dtypes import ELEMENT_TYPES

__all__ = ["PassedGraph", "equal", "graphs", "values"]

node = helper.make_node
# The first opset whose Cast, Identity, Transpose and Concat take a dtype, where it is above 21.
OPSETS = {"float4_e2m1fn": 23, "float8_e8m0fnu": 24, "uint2": 25, "int2": 25,
          "float6_e2m3fn": 28, "float6_e3m2fn": 28}  # fmt: skip
SPECIAL = {"uint2": [1, 2, 3, 0, 1, 2], "int2": [1, -2, 0, -1, 1, 0], "bool": [1, 0, 1, 1, 0, 0],
           "float8_e8m0fnu": [1, 2, 4, 2, 1, 4], "string": ["a", "bb", "", "é", "e", "z"],
           "complex64": [1 + 2j, 2, -3j, 0, 1, 2],
           "complex128": [1 + 2j, 2, -3j, 0, 1, 2]}  # fmt: skip
SHAPE = (2, 3)


@dataclass
class PassedGraph:
    """A model, its inputs, what it must return, and sets of nodes to keep on the host."""

    name: str
    model: onnx.ModelProto
    fed: dict[str, Any]
    expected: dict[str, Any]
    hosts: tuple[str, ...] = field(default=("", "*"))


def values(dtype: str) -> np.ndarray:
    """Return six numbers, or texts, that a dtype holds exactly."""
    numbers = SPECIAL.get(dtype, [1, 2, 3, 0, 1, 2] if dtype[0] == "u" else [1, 2, -3, 0, 1, -2])
    return np.array(numbers).astype(object if dtype == "string" else dtype).reshape(SHAPE)


def equal(expected: Any, got: Any) -> bool:
    """Tell whether a result has the expected dtype, shape and bits; a list is a sequence."""
    if isinstance(expected, list):
        return (
            isinstance(got, list) and len(got) == len(expected) and all(map(equal, expected, got))
        )
    return (
        isinstance(got, np.ndarray)
        and got.dtype == expected.dtype
        and got.shape == expected.shape
        and got.tolist() == expected.tolist()
    )


def _tensor(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(array, name)


def graphs(dtype: str) -> Iterator[PassedGraph]:
    """Yield the graphs of a dtype: as input, output, constant, sequence, and in control flow."""
    kind, x = ELEMENT_TYPES[dtype], values(dtype)
    turned = np.ascontiguousarray(x.T)
    # What is cast to the dtype, and what the dtype is cast back to.
    plain = np.arange(6).reshape(SHAPE) if dtype == "string" else x.real.astype(np.float32)
    made = plain.astype(str).astype(object) if dtype == "string" else plain.astype(x.dtype)
    plain_kind = TensorProto.INT64 if dtype == "string" else TensorProto.FLOAT
    index = {"one": np.asarray(1, np.int64), "three": np.asarray(3, np.int64)}

    def model(nodes: Any, inputs: Any, outputs: Any, **constants: np.ndarray) -> onnx.ModelProto:
        tensors = [_tensor(name, array) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "passed", inputs, outputs, tensors)
        opset = helper.make_opsetid("", OPSETS.get(dtype, 21))
        return helper.make_model(graph, opset_imports=[opset])

    x_in, y_out, plain_in = (
        value("x", SHAPE, kind),
        value("y", SHAPE, kind),
        value("x", SHAPE, plain_kind),
    )
    yield PassedGraph(
        "identity", model([node("Identity", ["x"], ["y"])], [x_in], [y_out]), {"x": x}, {"y": x}
    )
    casts = [
        node("Cast", ["x"], ["v"], "first", to=kind),
        node("Transpose", ["v"], ["w"], "turn", perm=[1, 0]),
        node("Cast", ["w"], ["y"], "last", to=plain_kind),
    ]
    yield PassedGraph(
        "casts",
        model(
            casts,
            [plain_in],
            [
                value("y", SHAPE[::-1], plain_kind),
                value("v", SHAPE, kind),
                value("w", SHAPE[::-1], kind),
            ],
        ),
        {"x": plain},
        {"y": np.ascontiguousarray(plain.T), "v": made, "w": np.ascontiguousarray(made.T)},
        ("", "*", "first,last", "turn", "first", "last"),
    )
    yield PassedGraph(
        "turned",
        model(
            [node("Transpose", ["x"], ["y"], perm=[1, 0])], [x_in], [value("y", SHAPE[::-1], kind)]
        ),
        {"x": x},
        {"y": turned},
    )
    yield PassedGraph(
        "constant",
        model([node("Concat", ["w", "x"], ["y"], axis=0)], [x_in], [value("y", (4, 3), kind)], w=x),
        {"x": x},
        {"y": np.concatenate([x, x])},
    )
    folded = [
        node("Cast", ["w"], ["v"], "cast", to=kind),
        node("Concat", ["v", "x"], ["y"], "join", axis=0),
    ]
    yield PassedGraph(
        "folded",
        model(folded, [x_in], [value("y", (4, 3), kind), value("v", SHAPE, kind)], w=plain),
        {"x": x},
        {"y": np.concatenate([made, x]), "v": made},
        ("", "*", "cast", "join"),
    )
    listed = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceAt", ["s", "one"], ["y"]),
        node("Optional", ["x"], ["o"]),
        node("OptionalGetElement", ["o"], ["z"]),
    ]
    sequence = helper.make_tensor_sequence_value_info("s", kind, None)
    yield PassedGraph(
        "listed",
        model(listed, [x_in], [y_out, value("z", SHAPE, kind), sequence], one=index["one"]),
        {"x": x},
        {"y": x, "z": x, "s": [x, x]},
    )
    body = helper.make_graph(
        [
            node("Identity", ["c"], ["c2"], "go"),
            node("Transpose", ["v"], ["t"], "a", perm=[1, 0]),
            node("Transpose", ["t"], ["v2"], "b", perm=[1, 0]),
            node("Identity", ["v"], ["s"], "s"),
        ],
        "body",
        [
            value("i", (), TensorProto.INT64),
            value("c", (), TensorProto.BOOL),
            value("v", SHAPE, kind),
        ],
        [value("c2", (), TensorProto.BOOL), value("v2", SHAPE, kind), value("s", SHAPE, kind)],
    )
    yield PassedGraph(
        "loop",
        model(
            [node("Loop", ["three", "", "x"], ["y", "z"], body=body)],
            [x_in],
            [y_out, value("z", (3, *SHAPE), kind)],
            three=index["three"],
        ),
        {"x": x},
        {"y": x, "z": np.stack([x] * 3)},
        ("", "*", "a", "b,s"),
    )
    empty = model(
        [node("Cast", ["x"], ["y"], to=kind)],
        [value("x", ("n", 3), plain_kind)],
        [value("y", ("n", 3), kind)],
    )
    yield PassedGraph("empty", empty, {"x": plain[:0]}, {"y": made[:0]})
    yield PassedGraph("some rows", empty, {"x": plain[:1]}, {"y": made[:1]})
