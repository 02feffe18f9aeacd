"""Quantise a model: calibrate, insert codes, and measure the error of each layer.

The worst layers stay in float32 until the outputs keep a bound. Sources: ONNX
DynamicQuantizeLinear-11, MatMulInteger-10, ConvInteger-10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

from vklab.apps.quantization import calibrate, codes, histogram, nbits, static
from vklab.apps.quantization.calibrate import Load
from vklab.apps.quantization.model import Layer, Model, replace_nodes
from vklab.base import draw
from vklab.errors import ModelError

# The first opset whose DequantizeLinear has a scale for each filter.
OPSET = 13
# Share of the layers that stay in float32 in one more attempt to keep a bound.
STEP = 16


def rewrite(model: Model, layers: Collection[Layer], per_channel: bool = True) -> onnx.ModelProto:
    """Return the model with each layer as DynamicQuantizeLinear and a product of integers.

    Args:
        model: the model.
        layers: the layers to quantise.
        per_channel: whether each filter has a scale of its own.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model.proto)
    graph = made.graph
    chosen = {layer.name: layer for layer in layers}
    shared: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    for node in model.proto.graph.node:
        layer = chosen.get(node.name or node.output[0])
        if layer is None:
            nodes.append(node)
            continue
        x = node.input[0]
        if x not in shared:
            shared.add(x)
            parts = [f"{x}:{part}" for part in ("codes", "scale", "zero")]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts, f"{x}:quantize"))
        added, more = _product(model, layer, per_channel)
        nodes += added
        constants |= more
    replace_nodes(graph, nodes)
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return made


def _product(
    model: Model, layer: Layer, per_channel: bool
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Return the nodes and the constants that compute a layer from codes."""
    node, name = layer.node, layer.name
    weights, axis = layer.weights, layer.axis
    if node.op_type != "Conv" and axis == 0:
        weights, axis = np.ascontiguousarray(weights.T), 1
    scale = codes.of_weights(weights, axis if per_channel else None)
    shape = (1, -1) + (1,) * (weights.ndim - 2) if node.op_type == "Conv" else (-1,)
    constants = {
        f"{name}:weights": codes.quantized(weights, scale),
        f"{name}:scale": scale.steps.reshape(shape if per_channel else ()),
    }
    x = node.input[0]
    op_type = "ConvInteger" if node.op_type == "Conv" else "MatMulInteger"
    product = helper.make_node(
        op_type, [f"{x}:codes", f"{name}:weights", f"{x}:zero"], [f"{name}:sums"], name
    )
    if node.op_type == "Conv":
        product.attribute.extend(node.attribute)
    bias = node.input[2] if len(node.input) > 2 else ""
    end = node.output[0]
    wide = helper.make_node("Cast", [f"{name}:sums"], [f"{name}:wide"], to=onnx.TensorProto.FLOAT)
    steps = [
        product,
        wide,
        helper.make_node("Mul", [f"{x}:scale", f"{name}:scale"], [f"{name}:step"]),
        helper.make_node(
            "Mul", [f"{name}:wide", f"{name}:step"], [f"{name}:real" if bias else end]
        ),
    ]
    if bias:
        array = model.array(bias)
        if array is not None:
            constants[f"{name}:bias"] = array.reshape(shape) if array.size > 1 else array
        steps.append(
            helper.make_node(
                "Add", [f"{name}:real", f"{name}:bias" if array is not None else bias], [end]
            )
        )
    return steps, constants


@dataclass(frozen=True)
class Choice:
    """Options of a quantisation.

    Attributes:
        bits: 0 for codes of weights and activations, 4 or 8 for MatMulNBits.
        method: how ranges are taken from histograms; `histogram.METHODS`.
        keep: names of nodes, or operators, that stay in float32.
        max_drop: the largest drop of the outputs, as `drop` measures it; None for any.
        per_channel: whether each filter has a scale of its own.
        symmetric: whether activations are int8 around 0 and not uint8.
    """

    bits: int = 0
    method: str = "min-max"
    keep: tuple[str, ...] = ()
    max_drop: float | None = None
    per_channel: bool = True
    symmetric: bool = False


@dataclass(frozen=True)
class LayerError:
    """One layer's signal-to-quantisation-noise ratio, and the bytes of its weights."""

    name: str
    op_type: str
    sqnr_db: float | None
    before_bytes: int
    after_bytes: int
    kept: bool


@dataclass(frozen=True)
class Quantized:
    """A quantised model with the error of each layer; `drop` is None without calibration data."""

    proto: onnx.ModelProto
    layers: tuple[LayerError, ...]
    drop: float | None
    before_bytes: int
    after_bytes: int

    def __str__(self) -> str:
        kept = sum(layer.kept for layer in self.layers)
        drop = "" if self.drop is None else f", drop {self.drop:.2%}"
        sizes = f"{draw.bytes_text(self.before_bytes)} -> {draw.bytes_text(self.after_bytes)}"
        return f"{len(self.layers) - kept} of {len(self.layers)} layers quantised, {sizes}{drop}"

    def _repr_html_(self) -> str:
        rows = [
            (
                each.name,
                each.op_type,
                "float32" if each.kept else "quantised",
                "" if each.sqnr_db is None else f"{each.sqnr_db:.1f}",
                draw.bytes_text(each.before_bytes),
                draw.bytes_text(each.after_bytes),
            )
            for each in self.layers
        ]
        names = ("layer", "operator", "kept in", "SQNR in dB", "weights before", "after")
        return draw.table_html(str(self), names, rows)


def quantize(
    proto: onnx.ModelProto, choice: Choice | None = None,
    data: Mapping[str, np.ndarray] | None = None, load: Load | None = None,
) -> Quantized:  # fmt: skip
    """Return a model quantised as chosen.

    With data, activations have fixed ranges; without, the ranges of each run.

    Args:
        proto: a float32 model.
        choice: how to quantise; default int8 codes, a scale for each filter.
        data: calibration data: an array for each input, whose first axis has the samples.
        load: returns a session of a model; default vklab's, on the default device.

    Raises ModelError for data that does not fit, a model without layers to quantise, unknown names
    in `keep`, and a bound that no choice of layers keeps.
    """
    choice = choice or Choice()
    if choice.method not in histogram.METHODS:
        raise ModelError(
            f"unknown method {choice.method!r}; choose one of {', '.join(histogram.METHODS)}"
        )
    if choice.max_drop is not None and data is None:
        raise ModelError("a bound on the drop takes calibration data")
    model = Model(_with_opset(proto))
    return _Attempts(model, choice, data, load).best()


def _with_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    versions = {each.domain: each.version for each in proto.opset_import}
    if versions.get("", OPSET) >= OPSET:
        return proto
    made: onnx.ModelProto = version_converter.convert_version(proto, OPSET)
    return made


class _Attempts:
    """Quantisations of one model, each with more layers in float32 than the one before."""

    def __init__(
        self, model: Model, choice: Choice, data: Mapping[str, np.ndarray] | None,
        load: Load | None,
    ) -> None:  # fmt: skip
        self.model, self.choice, self.data, self.load = model, choice, data, load
        self.layers = [
            layer for layer in model.layers() if not choice.bits or layer.node.op_type != "Conv"
        ]
        names = {layer.name for layer in self.layers} | {n.op_type for n in model.proto.graph.node}
        unknown = [name for name in choice.keep if name not in names]
        if unknown:
            raise ModelError(
                f"no node to keep is called {unknown[0]!r}; there are "
                f"{', '.join(layer.name for layer in self.layers)}"
            )
        if data is not None:
            calibrate.check(model, data)
        self._scales = self._calibrated() if data is not None and not choice.bits else {}
        self._exact = list(self._values(model.proto)) if data is not None else []

    def _calibrated(self) -> dict[str, codes.Scale]:
        """Return the scale of each value that may travel in codes."""
        assert self.data is not None
        names = static.measured(self.model, self.layers)
        take = histogram.METHODS[self.choice.method]
        dtype = "int8" if self.choice.symmetric else "uint8"
        counted = calibrate.histograms(self.model, self.data, names, self.load)
        return {name: codes.of_range(*take(each), dtype) for name, each in counted.items()}

    def _values(self, proto: onnx.ModelProto) -> Any:
        """Return the results of all layers, batch by batch."""
        assert self.data is not None
        names = [layer.node.output[0] for layer in self.layers]
        return calibrate.values(Model(proto), self.data, names, self.load)

    def _made(self, kept: Collection[str]) -> onnx.ModelProto:
        chosen = [layer for layer in self.layers if layer.name not in kept]
        if self.choice.bits:
            return nbits.rewrite(self.model, chosen, self.choice.bits)
        if self.data is None:
            return rewrite(self.model, chosen, self.choice.per_channel)
        return static.insert(self.model, chosen, self._scales, self.choice.per_channel)

    def best(self) -> Quantized:
        """Return the first attempt that keeps the bound."""
        keep = set(self.choice.keep)
        kept = {layer.name for layer in self.layers if keep & {layer.name, layer.node.op_type}}
        while len(kept) < len(self.layers):
            made = self._made(kept)
            quality, lost = self._measured(made) if self._exact else ({}, None)
            bound = self.choice.max_drop
            if lost is None or bound is None or lost <= bound:
                return self._result(made, kept, quality, lost)
            left = [layer.name for layer in self.layers if layer.name not in kept]
            kept.update(sorted(left, key=quality.__getitem__)[: max(1, len(self.layers) // STEP)])
        raise ModelError(
            "no layer is left to quantise: "
            + (
                f"the outputs drop by more than {self.choice.max_drop:g} with any of them"
                if self.choice.max_drop is not None
                else "all of them are to be kept"
            )
        )

    def _measured(self, made: onnx.ModelProto) -> tuple[dict[str, float], float]:
        """Return the SQNR of each layer's result, and the drop of the model's outputs."""
        found = list(self._values(made))
        quality = {}
        for layer in self.layers:
            exact, ours = (
                np.concatenate([np.asarray(each[layer.node.output[0]]).ravel() for each in runs])
                for runs in (self._exact, found)
            )
            quality[layer.name] = codes.sqnr_db(exact, ours)
        outputs = [value.name for value in self.model.proto.graph.output]
        return quality, max(
            drop(
                *(
                    np.concatenate([np.atleast_1d(each[name]) for each in runs])
                    for runs in (self._exact, found)
                )
            )
            for name in outputs
        )

    def _result(
        self, made: onnx.ModelProto, kept: Collection[str], quality: Mapping[str, float],
        lost: float | None,
    ) -> Quantized:  # fmt: skip
        errors = tuple(self._error(layer, layer.name in kept, quality) for layer in self.layers)
        return Quantized(made, errors, lost, self.model.proto.ByteSize(), made.ByteSize())

    def _error(self, layer: Layer, kept: bool, quality: Mapping[str, float]) -> LayerError:
        before = layer.weights.nbytes
        filters = layer.weights.shape[layer.axis]
        scales = 5 * (filters if self.choice.per_channel else 1)  # step and zero point
        after = before if kept else layer.weights.size + scales
        if self.choice.bits and not kept:
            after = sum(
                each.nbytes
                for each in nbits.blocks(
                    layer.weights if layer.axis == 1 else layer.weights.T, self.choice.bits
                )
            )
        return LayerError(
            layer.name, layer.node.op_type, quality.get(layer.name), before, after, kept
        )


def drop(exact: np.ndarray, ours: np.ndarray) -> float:
    """Return how much an output has changed, from 0 to 1.

    For scores of classes, float numbers [samples, classes], the share of samples with another
    class; for other outputs the size of the error relative to that of the output.
    """
    if exact.ndim == 2 and exact.shape[1] > 1 and exact.dtype.kind == "f":
        return float((exact.argmax(1) != ours.argmax(1)).mean())
    return float(10 ** (-codes.sqnr_db(exact, ours) / 20))
