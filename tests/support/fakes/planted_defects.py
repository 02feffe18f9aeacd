"""Defects planted into a backend: it runs ONNX Runtime on a spoilt copy of every model it gets.

Run as a program, this file lists for models of tests/models which defects `--layers` finds at
their layer, and which are invisible, with their effect. A defect must be found if its local effect
exceeds four times the layer's tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests/, for a run of this file

from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.judging import lengths
from vklab.apps.compare.layerwise import cuts, layers
from vklab.apps.compare.layerwise.cuts import LOCAL
from vklab.apps.compare.truth import oracle
from vklab.runtime import tolerances
from vklab.runtime.host import Reference

SINGLE = Dtypes("float32", "float32", "float32")
HALF = Dtypes("float16", "float16", "float32")
VISIBLE = 4.0
Spoil = Callable[[onnx.ModelProto], onnx.ModelProto]
Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Found:
    """What the layers say of one defect; `effect` is its local error in float64."""

    kind: str
    layer: str
    effect: float
    times: float  # the effect as a multiple of the layer's tolerance
    named: str  # the layer that is named first; "" if none

    def __str__(self) -> str:
        said = f"found at {self.named}" if self.named else "invisible"
        return (
            f"{self.kind:10} {self.layer:24} local effect {self.effect:.2g}, {self.times:.2g} "
            f"times the tolerance: {said}"
        )


def small_model() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model with convolutions, both normalizations and square products, and an input."""
    random = np.random.default_rng(7)

    def weight(*shape: int, about: float = 0.0) -> np.ndarray:
        scale = (2 / max(int(np.prod(shape[1:])), 1)) ** 0.5 if len(shape) > 1 else 0.3
        return (random.standard_normal(shape) * scale + about).astype(np.float32)

    tensors = {
        "w1": weight(8, 3, 3, 3),
        "b1": weight(8),
        "scale": weight(8, about=1),
        "shift": weight(8),
        "mean": weight(8),
        "variance": np.abs(weight(8, about=1)),
        "w2": weight(8, 8, 3, 3),
        "b2": weight(8),
        "w3": weight(16, 16),
        "w4": weight(16, 16),
        "gain": weight(16, about=1),
        "offset": weight(16),
        "w5": weight(16, 5),
        "b5": weight(5),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1", "b1"], ["conv"], "node_conv", pads=[1] * 4),
        node(
            "BatchNormalization",
            ["conv", "scale", "shift", "mean", "variance"],
            ["norm"],
            "node_norm",
            epsilon=1e-5,
        ),
        node("Relu", ["norm"], ["relu"], "node_relu"),
        node("Conv", ["relu", "w2", "b2"], ["conv_1"], "node_conv_1", pads=[1] * 4),
        node("Relu", ["conv_1"], ["relu_1"], "node_relu_1"),
        node(
            "Constant",
            [],
            ["shape"],
            "node_shape",
            value=numpy_helper.from_array(np.array([-1, 16], np.int64)),
        ),
        node("Reshape", ["relu_1", "shape"], ["rows"], "node_rows"),
        node("MatMul", ["rows", "w3"], ["product"], "node_product"),
        node(
            "LayerNormalization",
            ["product", "gain", "offset"],
            ["normed"],
            "node_normed",
            epsilon=1e-5,
        ),
        node("Gelu", ["normed"], ["gelu"], "node_gelu"),
        node("Transpose", ["w4"], ["w4_t"], "node_w4_t", perm=[1, 0]),
        node("MatMul", ["gelu", "w4_t"], ["product_1"], "node_product_1"),
        node("Gemm", ["product_1", "w5", "b5"], ["logits"], "node_logits"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [32, 5])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model, {"image": random.standard_normal((1, 3, 8, 8)).astype(np.float32)}


def single(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model in ONNX Runtime on the CPU."""
    return Reference(model).run(inputs)


def half(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model in float16 with wide sums: weights and every node's results are rounded."""
    wide = oracle.widen(model, "float16")
    values = {name: _narrow(array) for name, array in inputs.items()}
    values |= {t.name: numpy_helper.to_array(t) for t in wide.graph.initializer}
    for node in wide.graph.node:
        names = cuts.reads(node)
        infos = [onnx.ValueInfoProto(name=name) for name in names]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "one", infos, outputs)
        one = helper.make_model(graph, opset_imports=wide.opset_import)
        made = oracle.evaluate(one, {name: values[name] for name in names})
        values |= {name: _narrow(made[name]) for name in node.output if name in made}
    return {info.name: values[info.name].astype(np.float32) for info in model.graph.output}


def _narrow(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float64) if array.dtype.kind == "f" else array


def spoilt(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model, to be spoilt."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def epsilon(name: str, value: float) -> Spoil:
    """Return a defect: another epsilon in the node of a name."""

    def spoil(model: onnx.ModelProto) -> onnx.ModelProto:
        other = spoilt(model)
        for node in other.graph.node:
            if node.name == name:
                kept = [item for item in node.attribute if item.name != "epsilon"]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute("epsilon", value)])
        return other

    return spoil


def transposed(name: str) -> Spoil:
    """Return a defect: a weight whose memory is read with its last two axes exchanged."""

    def spoil(model: onnx.ModelProto) -> onnx.ModelProto:
        other = spoilt(model)
        for tensor in other.graph.initializer:
            if tensor.name == name:
                array = numpy_helper.to_array(tensor)
                swapped = np.ascontiguousarray(array.swapaxes(-1, -2)).reshape(array.shape)
                tensor.CopyFrom(numpy_helper.from_array(swapped, name))
        return other

    return spoil


def swapped(one: str, two: str) -> Spoil:
    """Return a defect: two constants of the same shape in each other's place."""

    def spoil(model: onnx.ModelProto) -> onnx.ModelProto:
        other = spoilt(model)
        names = {one: two, two: one}
        for tensor in other.graph.initializer:
            tensor.name = names.get(tensor.name, tensor.name)
        return other

    return spoil


def study(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], kind: str, layer: str, spoil: Spoil,
    dtypes: Dtypes = SINGLE, run: Run | None = None,
) -> Found:  # fmt: skip
    """Plant a defect into a backend, and return what the errors by layer say of it.

    Args:
        model: the right model.
        inputs: its inputs.
        kind: the defect's name.
        layer: the value that the defect changes first.
        spoil: plants the defect into any part of the model.
        dtypes: SINGLE or HALF.
        run: runs a model on the backend; by default ONNX Runtime, or float16 by onnx.reference.
    """
    run = run or (single if dtypes == SINGLE else half)
    truth = oracle.of_graph(model, inputs).layers
    given = layers.local(model, truth, dtypes)
    wide = oracle.evaluate(oracle.widen(spoil(given.model)), given.inputs)
    wrong, right = wide[f"{layer}{LOCAL}"], given.truth[f"{layer}{LOCAL}"]
    node = next(n for n in model.graph.node if layer in n.output)
    shapes = {name: array.shape for name, array in truth.items()}
    allowed = tolerances.layer(
        dtypes.arithmetic,
        dtypes.weights,
        dtypes.sums,
        lengths.terms(node, shapes),
        lengths.has_functions(node),
    )
    size = np.abs(right)
    limit = allowed.atol * size.max() + allowed.rtol * size
    tapped = run(spoil(cuts.tapped(model, truth)), inputs)
    made = run(spoil(given.model), given.inputs)
    rows = layers.by_layer(model, truth, dtypes, tapped, given, made)
    named = next((row.name for row in rows if (row.share or 0) > 1), "")
    return Found(
        kind,
        layer,
        float(np.abs(wrong - right).max()),
        float((np.abs(wrong - right) / limit).max()),
        named,
    )


def overflowing(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the small model with products around 1e5, which a later weight scales back."""
    other = spoilt(model)
    for tensor in other.graph.initializer:
        factor = {"w3": 1e5, "w5": 1e-5}.get(tensor.name, 1.0)
        array = numpy_helper.to_array(tensor) * np.float32(factor)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return other


def defects(model: onnx.ModelProto) -> list[tuple[str, str, Spoil]]:
    """Return defects of every kind for the nodes of a model: name, first wrong value, defect."""
    weights = {
        t.name: tuple(t.dims) for t in model.graph.initializer if t.data_type == TensorProto.FLOAT
    }
    found: list[tuple[str, str, Spoil]] = []
    for node in model.graph.node:
        value, given = node.output[0], [name for name in node.input if name in weights]
        if node.op_type == "LayerNormalization":
            now = next((item.f for item in node.attribute if item.name == "epsilon"), 1e-5)
            found.append(("epsilon", value, epsilon(node.name, 1e-5 if now < 1e-8 else 1e-12)))
            found.append(("epsilon", value, epsilon(node.name, 1e-3)))
        if node.op_type == "BatchNormalization":
            found.append(("epsilon", value, epsilon(node.name, 1e-3)))
        for name in given[:1]:
            is_linear = node.op_type in ("Conv", "MatMul", "Gemm")
            if is_linear and min((1, 1, *weights[name])[-2:]) > 1:
                found.append(("transposed", value, transposed(name)))
        alike = [(a, b) for a in given for b in given if a < b and weights[a] == weights[b]]
        found += [("swapped", value, swapped(a, b)) for a, b in alike[:1]]
    return found


def rows_of(model, inputs, truth, dtypes, run, spoil=lambda model: model):
    """Return the errors by layer of a backend that may have a defect.

    Args:
        model: the right model.
        inputs: arrays by input name.
        truth: the oracle.
        dtypes: dtypes of the backend.
        run: returns the outputs of a model for some inputs, as the backend computes them.
        spoil: returns a model with a defect.
    """
    given = layers.local(model, truth.layers, dtypes)
    tapped = run(spoil(cuts.tapped(model, truth.layers)), inputs)
    made = run(spoil(given.model), given.inputs)
    return layers.by_layer(model, truth.layers, dtypes, tapped, given, made)


def main(names: list[str]) -> None:
    """Print what is found in the small model, and in models of tests/models."""
    from support.models import exported_models

    studied = [("the small model", *small_model())]
    for name in names:
        model = exported_models.load(name)
        sizes = exported_models.sizes_of(name)[0]
        studied.append((name, model, exported_models.inputs_of(model, sizes)))
    for title, model, inputs in studied:
        for dtypes in (SINGLE, HALF) if title == "the small model" else (SINGLE,):
            print(f"{title}, {dtypes.arithmetic}")
            for kind, layer, spoil in defects(model):
                print(f"  {study(model, inputs, kind, layer, spoil, dtypes)}")


if __name__ == "__main__":
    main(sys.argv[1:])
