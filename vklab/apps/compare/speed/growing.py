"""Times of a growing sequence: a run of a new size, and the next run of the same size.

The model is a decoder with a KV cache: each step reads the keys and values of all earlier ones.
Visited by lab 11. Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vklab import settings
from vklab.runtime import loading

WIDTH, HEADS, SIZE = 32, 2, 16
LAYERS, LONGEST, STEPS = 8, 64, range(2, 42)


def decoder(layers: int = 2) -> onnx.ModelProto:
    """Return layers of attention and a gated product; `past` is the only open dimension."""
    random = np.random.default_rng(0)
    constants = {
        "split": np.array([1, 1, HEADS, SIZE]),
        "join": np.array([1, 1, WIDTH]),
        "scale": np.float32(0.25),
        "gain": np.ones(WIDTH, np.float32),
    }
    inputs: list[tuple[str, list[int | str]]] = [("x", [1, 1, WIDTH])]
    outputs: list[str] = []
    nodes: list[onnx.NodeProto] = []
    x = "x"
    for layer in range(layers):
        past = {role: f"past_{role}{layer}" for role in "kv"}
        inputs += [(name, [1, HEADS, "past", SIZE]) for name in past.values()]
        outputs += [f"k{layer}", f"v{layer}"]
        for name in ("q", "k", "v", "o", "up", "down"):
            square = random.standard_normal((WIDTH, WIDTH)).astype(np.float32)
            constants[f"w{name}{layer}"] = square / np.float32(6)
        body = _layer(x, layer)
        shared = {"x", *past.values(), *outputs, *constants}
        for node in body:  # values of a layer end with its number
            for names in (node.input, node.output):
                names[:] = [n if n in shared or n == x else f"{n}.{layer}" for n in names]
        nodes += body
        x = f"y.{layer}"
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs],
        [onnx.ValueInfoProto(name=name) for name in (*outputs, x)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _layer(x: str, layer: int) -> list[onnx.NodeProto]:
    node = helper.make_node
    nodes = [node("LayerNormalization", [x, "gain"], ["normal"])]
    for role in "qkv":
        nodes += [
            node("MatMul", ["normal", f"w{role}{layer}"], [f"flat_{role}"]),
            node("Reshape", [f"flat_{role}", "split"], [f"rows_{role}"]),
            node("Transpose", [f"rows_{role}"], [f"new_{role}"], perm=[0, 2, 1, 3]),
        ]
    return [
        *nodes,
        node("Concat", [f"past_k{layer}", "new_k"], [f"k{layer}"], axis=2),
        node("Concat", [f"past_v{layer}", "new_v"], [f"v{layer}"], axis=2),
        node("Transpose", [f"k{layer}"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["new_q", "turned"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", f"v{layer}"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "join"], ["joined"]),
        node("MatMul", ["joined", f"wo{layer}"], ["attended"]),
        node("Add", [x, "attended"], ["sum"]),
        node("MatMul", ["sum", f"wup{layer}"], ["up"]),
        node("Sigmoid", ["up"], ["gate"]),
        node("Mul", ["up", "gate"], ["gated"]),
        node("MatMul", ["gated", f"wdown{layer}"], ["down"]),
        node("Add", ["sum", "down"], ["y"]),
    ]


def feeds(past: int, layers: int = 2) -> dict[str, np.ndarray]:
    """Return a token and the keys and values of `past` earlier ones."""
    random = np.random.default_rng(past)
    shapes = {
        f"past_{role}{layer}": (1, HEADS, past, SIZE) for layer in range(layers) for role in "kv"
    }
    return {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in ({"x": (1, 1, WIDTH)} | shapes).items()
    }


@dataclass(frozen=True)
class Row:
    """Medians of a sequence that grows by one.

    Attributes:
        variant: "templates", or "full plans" (DISABLE_TEMPLATES).
        first_ms: the first run of a size.
        again_ms: the next run of that size.
        slowest_ms: the slowest first run: a trace, where other kernels are chosen.
    """

    model: str
    variant: str
    first_ms: float
    again_ms: float
    slowest_ms: float

    def summary(self) -> dict[str, Any]:
        """Return the row ready for JSON."""
        return asdict(self)


def measure(device: int | str | None = None) -> Iterator[Row]:
    """Yield a row with templates, and one without."""
    model, fed = decoder(LAYERS), [feeds(past, LAYERS) for past in STEPS]
    for variant, disabled in (("templates", False), ("full plans", True)):
        with (
            settings.settings(DISABLE_TEMPLATES=disabled),
            loading.load(model, device, upper_bounds={"past": LONGEST}) as session,
        ):
            session.run(fed[0])
            first, again = zip(
                *(
                    (_milliseconds(session.run, each), _milliseconds(session.run, each))
                    for each in fed[1:]
                ),
                strict=True,
            )
        yield Row(f"decoder_{LAYERS}", variant, median(first), median(again), max(first))


def _milliseconds(run: Callable[[Any], object], fed: Any) -> float:
    begun = time.perf_counter()
    run(fed)
    return (time.perf_counter() - begun) * 1e3
