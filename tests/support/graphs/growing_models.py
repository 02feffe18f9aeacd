"""Models of open sizes: with masks and numbers that planning folds, control flow, random ones."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from support.graphs.small_models import model, random_array, value

NODE = helper.make_node


def sized() -> onnx.ModelProto:
    """Return x plus numbers that planning folds: 0, 1, ... and a causal mask of their count."""
    nodes = [
        NODE("Shape", ["x"], ["dims"]),
        NODE("Squeeze", ["dims"], ["count"]),
        NODE("Range", ["zero", "count", "one"], ["places"]),
        NODE("Unsqueeze", ["places", "one_axis"], ["rows"]),
        NODE("LessOrEqual", ["places", "rows"], ["seen"]),
        NODE("Cast", ["places"], ["floats"], to=1),
        NODE("Add", ["x", "floats"], ["sum"]),
        NODE("Where", ["seen", "sum", "low"], ["masked"]),
        NODE("Softmax", ["masked"], ["weights"], axis=-1),
        NODE("MatMul", ["weights", "sum"], ["y"]),
    ]
    constants = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "one_axis": np.int64([1]),
        "low": np.float32(-1e9),
    }
    return model(nodes, [value("x", ("n",))], ["y"], constants)


def found() -> onnx.ModelProto:
    """Return rows of a product that are not zero: their number is known after a first chunk."""
    nodes = [
        NODE("Relu", ["x"], ["positive"]),
        NODE("NonZero", ["positive"], ["places"]),
        NODE("Cast", ["places"], ["floats"], to=1),
        NODE("MatMul", ["x", "w"], ["z"]),
        NODE("ReduceSum", ["floats"], ["y"], keepdims=0),
    ]
    return model(nodes, [value("x", ("n", 8))], ["y", "z"], {"w": random_array((8, 5))})


def controlled() -> onnx.ModelProto:
    """Return x doubled in a Loop as often as it has rows, then halved by an If on their number."""
    state = [value("i", (), 7), value("go", (), 9), value("s", ("n", 4))]
    body = helper.make_graph(
        [NODE("Add", ["s", "s"], ["s2"]), NODE("Identity", ["go"], ["go2"])],
        "body",
        state,
        [value("go2", (), 9), value("s2", ("n", 4))],
    )
    few, many = (
        helper.make_graph([NODE(op, ["end", "two"], [name])], name, [], [value(name, None)])
        for op, name in (("Mul", "few"), ("Div", "many"))
    )
    nodes = [
        NODE("Shape", ["x"], ["rows"], end=1),
        NODE("Squeeze", ["rows"], ["count"]),
        NODE("Mod", ["count", "four"], ["times"]),
        NODE("Loop", ["times", "", "x"], ["end"], body=body),
        NODE("Less", ["count", "four"], ["is_few"]),
        NODE("If", ["is_few"], ["y"], then_branch=few, else_branch=many),
    ]
    constants = {"four": np.int64(4), "two": np.float32(2)}
    return model(nodes, [value("x", ("n", 4))], ["y"], constants)


def random_model(random: np.random.Generator) -> onnx.ModelProto:
    """Return a chain of random operators on a matrix, whose rows are open, and on its transpose."""
    nodes = [
        NODE("Shape", ["x"], ["dims"]),
        NODE("Shape", ["x"], ["rows"], end=1),
        NODE("Squeeze", ["rows"], ["count"]),
        NODE("Range", ["zero", "count", "one"], ["places"]),
        NODE("Cast", ["places"], ["numbers"], to=1),
        NODE("Unsqueeze", ["numbers", "one_axis"], ["column"]),
    ]
    constants = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "one_axis": np.int64([1]),
        "ends": np.int64([-1]),
        "starts": np.int64([1]),
        "first": np.int64([0]),
        "flat": np.int64([-1]),
        "w": random_array((6, 6)),
        "row": random_array((6,)),
        "few": np.int64([3]),
    }
    last, ends = "x", []
    for number in range(random.integers(3, 9)):
        y = f"y{number}"
        steps = {
            "unary": [NODE(str(random.choice(["Relu", "Neg", "Sigmoid"])), [last], [y])],
            "row": [NODE("Mul", [last, "row"], [y])],
            "column": [NODE("Add", [last, "column"], [y])],
            "product": [NODE("MatMul", [last, "w"], [y])],
            "softmax": [NODE("Softmax", [last], [y], axis=int(random.integers(0, 2)))],
            "flat": [
                NODE("Reshape", [last, "flat"], [f"{y}f"]),
                NODE("Relu", [f"{y}f"], [f"{y}r"]),
                NODE("Reshape", [f"{y}r", "dims"], [y]),
            ],
            "joined": [
                NODE("Concat", [last, "x"], [f"{y}c"], axis=0),
                NODE("Slice", [f"{y}c", "first", "rows"], [y]),
            ],
            "attention": [
                NODE("Transpose", [last], [f"{y}t"]),
                NODE("MatMul", [last, f"{y}t"], [f"{y}s"]),
                NODE("Softmax", [f"{y}s"], [f"{y}w"]),
                NODE("MatMul", [f"{y}w", last], [y]),
            ],
            "shorter": [
                NODE("Slice", [last, "starts", "ends", "first"], [f"{y}a"]),
                NODE("ReduceSum", [f"{y}a"], [f"{y}b"], keepdims=0),
            ],
            "top": [
                NODE("ReduceMax", [last], [f"{y}m"], axes=[0], keepdims=1),
                NODE("Sub", [last, f"{y}m"], [y]),
            ],
        }
        kind = str(random.choice(list(steps)))
        nodes += steps[kind]
        if kind == "shorter":
            ends.append(f"{y}b")
        else:
            last = y
    return model(nodes, [value("x", ("n", 6))], [*ends, last], constants)
