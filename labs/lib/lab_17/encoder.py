"""A small encoder layer of twelve nodes, its truth in float64, and tests of a part fed the truth.

A part is a model of neighbouring nodes; what it reads from outside comes from the truth. Defects
are planted into the model that a backend gets. Visited by lab 17.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import vklab
from vklab.apps.compare.judging import errors
from vklab.runtime import tolerances
from vklab.runtime.tolerances import Tolerance

__all__ = ["BACKENDS", "DEFECTS", "NAMES", "Model", "bisected", "encoder", "shares", "truth_of"]

ROWS, WIDTH, CLASSES = 16, 32, 10
EPSILON = 1e-5
# Name, operator, what it reads.
NODES = (
    ("norm1", "LayerNormalization", ("x", "gain1", "shift1")),
    ("q", "MatMul", ("norm1", "wq")),
    ("k", "MatMul", ("norm1", "wk")),
    ("k_turned", "Transpose", ("k",)),
    ("v", "MatMul", ("norm1", "wv")),
    ("scores", "MatMul", ("q", "k_turned")),
    ("softmax", "Softmax", ("scores",)),
    ("mix", "MatMul", ("softmax", "v")),
    ("project", "MatMul", ("mix", "wo")),
    ("add", "Add", ("x", "project")),
    ("norm2", "LayerNormalization", ("add", "gain2", "shift2")),
    ("logits", "MatMul", ("norm2", "wc")),
)
NAMES = tuple(name for name, _, _ in NODES)
Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
# What is wrong in the model that a backend gets, and in which layer.
DEFECTS = {
    "sound": "",
    "wq turned": "q",
    "wv turned": "v",
    "epsilon 0.01": "norm1",
    "softmax by column": "softmax",
}


class Model:
    """The encoder: its weights, and models of neighbouring nodes."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)

        def drawn(*shape: int) -> np.ndarray:
            values = random.standard_normal(shape) / np.sqrt(shape[0])
            return np.asarray(values, np.float32)

        self.x = random.standard_normal((ROWS, WIDTH)).astype(np.float32)
        self.weights = {name: drawn(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")}
        self.weights["wc"] = drawn(WIDTH, CLASSES)
        for number in (1, 2):
            self.weights[f"gain{number}"] = 1 + 0.1 * drawn(WIDTH)
            self.weights[f"shift{number}"] = 0.1 * drawn(WIDTH)

    def part(self, first: int, last: int, defect: str = "sound") -> onnx.ModelProto:
        """Return the nodes first to last as a model; every node's value is an output.

        Args:
            first: number of its first node.
            last: number of its last node.
            defect: one of DEFECTS.
        """
        wrong, nodes = DEFECTS[defect], []
        weights = dict(self.weights)
        for name, operator, reads in NODES[first : last + 1]:
            more: dict[str, Any] = {}
            if operator == "LayerNormalization":
                more = {"axis": -1, "epsilon": 0.01 if name == wrong else EPSILON}
            elif operator == "Softmax":
                more = {"axis": 0 if name == wrong else -1}
            elif operator == "Transpose":
                more = {"perm": [1, 0]}
            elif name == wrong:
                weights[reads[1]] = np.ascontiguousarray(weights[reads[1]].T)
            nodes.append(helper.make_node(operator, reads, [name], name, **more))
        made = {name for name, _, _ in NODES[first : last + 1]}
        read = dict.fromkeys(each for node in nodes for each in node.input)
        given = [name for name in read if name not in made and name not in weights]
        kept = [numpy_helper.from_array(weights[name], name) for name in read if name in weights]
        graph = helper.make_graph(nodes, "part", [_info(n) for n in given],
                                  [_info(node.name) for node in nodes], kept)  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _info(name: str) -> onnx.ValueInfoProto:
    shape = {"scores": (ROWS, ROWS), "softmax": (ROWS, ROWS), "k_turned": (WIDTH, ROWS)}
    wide = CLASSES if name == "logits" else WIDTH
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape.get(name, (ROWS, wide)))


encoder = Model()


def truth_of(model: Model) -> dict[str, np.ndarray]:
    """Return the input and all values of the encoder in float64, computed by NumPy."""
    values: dict[str, np.ndarray] = {
        name: each.astype(np.float64) for name, each in {"x": model.x, **model.weights}.items()
    }
    for name, operator, reads in NODES:
        read = [values[each] for each in reads]
        if operator == "LayerNormalization":
            centred = read[0] - read[0].mean(-1, keepdims=True)
            spread = np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
            values[name] = centred / spread * read[1] + read[2]
        elif operator == "Softmax":
            powers = np.exp(read[0] - read[0].max(-1, keepdims=True))
            values[name] = powers / powers.sum(-1, keepdims=True)
        elif operator == "Transpose":
            values[name] = read[0].T
        else:
            values[name] = read[0] + read[1] if operator == "Add" else read[0] @ read[1]
    return values


def _vklab(model: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    with vklab.load(model) as session:
        return {name: np.asarray(each).copy() for name, each in session.run(dict(given)).items()}


def _reference(model: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    names = [info.name for info in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(names, dict(given)), strict=True))


# Backends that every copy of the course has.
BACKENDS: dict[str, Run] = {"vklab": _vklab, "onnx.reference": _reference}


def _share(got: np.ndarray, truth: np.ndarray, allowed: Tolerance) -> float:
    return round(float(errors.share(got, truth, allowed)), 3)


def part_passes(model: Model, first: int, last: int, defect: str, run: Run = _vklab) -> bool:
    """Tell whether the layers first to last, fed the truth, return what they should."""
    truth = truth_of(model)
    part = model.part(first, last, defect)
    given = {info.name: truth[info.name].astype(np.float32) for info in part.graph.input}
    allowed = tolerances.model("float32")
    made = run(part, given)
    return all(errors.share(each, truth[name], allowed) <= 1 for name, each in made.items())


def shares(model: Model, defect: str, run: Run = _vklab) -> tuple[list[dict[str, Any]], bool]:
    """Return local and cumulative shares of all layers, and whether the outputs passed.

    Args:
        model: the encoder.
        defect: one of DEFECTS.
        run: the backend.
    """
    truth, rows = truth_of(model), []
    whole = run(model.part(0, len(NODES) - 1, defect), {"x": model.x})
    for number, (name, operator, _) in enumerate(NODES):
        part = model.part(number, number, defect)
        given = {info.name: truth[info.name].astype(np.float32) for info in part.graph.input}
        allowed = tolerances.layer("float32", length=WIDTH, functions=operator == "Softmax")
        local = _share(run(part, given)[name], truth[name], allowed)
        cumulative = _share(whole[name], truth[name], tolerances.model("float32"))
        rows.append({"name": name, "local": local, "cumulative": cumulative})
    return rows, rows[-1]["cumulative"] <= 1


def bisected(rows: list[dict[str, Any]]) -> str:
    """Return the layer that bisection over the cumulative shares names."""
    low, high = 0, len(rows) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if rows[middle]["cumulative"] > 1 else (middle + 1, high)
    return str(rows[low]["name"])
