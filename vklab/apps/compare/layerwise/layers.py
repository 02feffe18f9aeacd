"""Errors by layer: cumulative in a whole run, and local, of a layer that is fed the truth.

A local error has two parts: the rounding of the weights, which the dtype asks for, and the
arithmetic. A layer is one float value of the ONNX graph, by its name, which is the fx name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.judging import errors, lengths
from vklab.apps.compare.layerwise import cuts
from vklab.apps.compare.layerwise.cuts import LOCAL
from vklab.apps.compare.truth import oracle
from vklab.runtime import tolerances
from vklab.runtime.tolerances import Tolerance

# Ends of names that converters give to a value that they cast or copy.
CASTS = re.compile(r"((_cast(_(fp|u?int)\d+)?|_to_(fp|u?int)\d+)+|/inner)$")


@dataclass(frozen=True)
class Layer:
    """Errors of one layer; None for what was not measured.

    Attributes:
        name: name of the value.
        node: name of the ONNX node that computes it.
        operator: the node's operator.
        terms: number of terms in its sums.
        size: largest element of the truth.
        cumulative: largest error in a run of the whole model.
        cumulative_share: the same as a share of the whole model's tolerance.
        local: largest error if the layer is fed the truth, which its dtype can hold.
        weights: part of the local error that rounded weights cause.
        arithmetic: part of the local error that remains.
        share: local error as a share of the layer's tolerance: up to 1 passes.
        reason: what the layer's tolerance allows for.
    """

    name: str
    node: str
    operator: str
    terms: int
    size: float
    cumulative: float | None = None
    cumulative_share: float | None = None
    local: float | None = None
    weights: float | None = None
    arithmetic: float | None = None
    share: float | None = None
    reason: str = ""

    def summary(self) -> dict[str, Any]:
        """Return the layer ready for JSON; None stands for an infinite error, too."""
        return {name: errors.plain(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, eq=False)
class Local:
    """A model whose layers are fed the truth, and what they should return.

    Attributes:
        model: each layer alone, in one ONNX model: run it once on the backend.
        inputs: arrays by the model's input names, of numbers that the backend's dtype can hold.
        truth: true outputs in float64.
        stored: outputs in float64 of the same model with rounded weights.
    """

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    truth: dict[str, np.ndarray]
    stored: dict[str, np.ndarray]


@dataclass(frozen=True)
class Taps:
    """Distance by which taps moved the outputs; layers count only if it is in the tolerance.

    Attributes:
        moved: largest absolute difference of an output.
        share: the same as a share of the whole model's tolerance.
    """

    moved: float
    share: float

    @property
    def trusted(self) -> bool:
        """Tell whether the tapped run computed the same as the untapped one."""
        return self.share <= 1

    def __str__(self) -> str:
        if self.trusted:
            return f"taps moved the outputs by at most {self.moved:.2g}"
        return (
            f"taps moved the outputs by {self.moved:.2g}, {self.share:.2g} times the "
            "tolerance: the tapped run is another computation, its layers prove "
            "nothing"
        )


def taps(
    plain: Mapping[str, np.ndarray], tapped: Mapping[str, np.ndarray], tolerance: Tolerance
) -> Taps:
    """Compare the outputs of an untapped and of a tapped run on one backend.

    Args:
        plain: outputs of the untapped model by name.
        tapped: outputs of the tapped model; it has more of them.
        tolerance: the tolerance of the whole model.
    """
    moved = largest = 0.0
    for name, array in plain.items():
        if name not in tapped or np.shape(tapped[name]) != np.shape(array):
            return Taps(math.inf, math.inf)
        if np.asarray(array).dtype.kind in "fV":
            moved = max(moved, errors.measure(tapped[name], array).largest)
        largest = max(largest, errors.share(tapped[name], array, tolerance))
    return Taps(moved, largest)


def local(
    model: onnx.ModelProto, truth: Mapping[str, np.ndarray], dtypes: Dtypes,
    only: Collection[str] = (), exact: onnx.ModelProto | None = None,
) -> Local:  # fmt: skip
    """Return the model that measures local errors on a backend.

    Args:
        model: the whole model, with its external data.
        truth: every value of the oracle, `Oracle.layers`.
        dtypes: the backend's dtypes.
        only: names of values whose layers alone are measured; empty for all.
        exact: the same model with its weights before rounding, if those of `model` are rounded.
    """
    values = fed(model, truth, dtypes.arithmetic)
    cut = cuts.separated(model, values, only)
    if exact is not None:
        wide = cuts.separated(exact, values, only)
        return Local(
            cut.model,
            cut.inputs,
            _outputs(wide.model, cut.inputs, "float64"),
            _outputs(cut.model, cut.inputs, "float64"),
        )
    right = _outputs(cut.model, cut.inputs, "float64")
    is_rounded = dtypes.weights in oracle.NARROW
    stored = _outputs(cut.model, cut.inputs, dtypes.weights) if is_rounded else right
    return Local(cut.model, cut.inputs, right, stored)


def fed(
    model: onnx.ModelProto, truth: Mapping[str, np.ndarray], arithmetic: str
) -> dict[str, np.ndarray]:
    """Return the truth as a backend can be fed it: numbers that its dtype can hold, as float64.

    Constants keep their values: weights are rounded to a dtype of their own.

    Args:
        model: the whole model.
        truth: every value of the oracle, `Oracle.layers`.
        arithmetic: dtype of products and activations.
    """
    fixed = cuts.constants(model)
    return {
        name: value if name in fixed else oracle.rounded(value, arithmetic)
        for name, value in truth.items()
    }


def of_module(
    program: Any, args: Sequence[np.ndarray], truth: Mapping[str, np.ndarray], dtypes: Dtypes
) -> Local:
    """Return what the layers of a torch module should return; its model is empty.

    Feed `Local.inputs` to `fx.alone` with the backend's dtypes, and end the names of what it
    returns with LOCAL.

    Args:
        program: what `fx.capture` returned for the module in float32.
        args: the model's inputs in the order of its forward.
        truth: values of its layers in float64 by fx name, `Oracle.modules`.
        dtypes: the backend's dtypes.
    """
    fx = oracle.load_fx()
    values = {name: oracle.rounded(value, dtypes.arithmetic) for name, value in truth.items()}
    given = [oracle.rounded(np.asarray(array), dtypes.arithmetic) for array in args]
    exact, stored = (
        {
            f"{name}{LOCAL}": value
            for name, value in fx.alone(program, given, values, "float64", weights).items()
        }
        for weights in ("", dtypes.weights)
    )
    return Local(onnx.ModelProto(), values, exact, stored)


def by_layer(
    model: onnx.ModelProto, truth: Mapping[str, np.ndarray], dtypes: Dtypes,
    cumulative: Mapping[str, np.ndarray], given: Local | None = None,
    made: Mapping[str, np.ndarray] | None = None, whole: Tolerance | None = None,
) -> tuple[Layer, ...]:  # fmt: skip
    """Return the errors of each layer, in the model's order.

    Args:
        model: the whole model.
        truth: every value of the oracle, `Oracle.layers`.
        dtypes: the backend's dtypes.
        cumulative: values of the tapped run, by ONNX or fx name; {} for a backend without taps.
        given: what `local` returned; None for no local errors.
        made: outputs of its model on the backend; layers that it lacks have no local error.
        whole: tolerance of the whole model; None for that of the dtypes.
    """
    shapes = {name: value.shape for name, value in truth.items()}
    whole = whole or tolerances.model(dtypes.arithmetic, dtypes.weights)
    joined = join(truth, cumulative)
    found = []
    passed_on: dict[str, tuple[int, bool]] = {}  # of nodes that are parts of a later layer
    for node in cuts.layer_nodes(model, truth):
        parts = [passed_on[name] for name in node.input if name in passed_on]
        count = max(lengths.terms(node, shapes), *(part[0] for part in parts), 1)
        functions = lengths.has_functions(node) or any(part[1] for part in parts)
        if given is not None and f"{node.output[0]}{LOCAL}" not in given.truth:
            passed_on[node.output[0]] = count, functions
        allowed = tolerances.layer(dtypes.arithmetic, dtypes.weights, dtypes.sums, count, functions)
        for name in node.output:
            if name not in truth or truth[name].dtype.kind != "f":
                continue
            size = float(np.abs(truth[name]).max(initial=0.0))
            entries: dict[str, Any] = {}
            if name in joined:
                got = oracle.stored(np.asarray(cumulative[joined[name]]), dtypes.arithmetic)
                entries["cumulative"] = _largest(got, truth[name])
                entries["cumulative_share"] = errors.share(got, truth[name], whole)
            if given is not None and made is not None and f"{name}{LOCAL}" in made:
                got = oracle.stored(np.asarray(made[f"{name}{LOCAL}"]), dtypes.arithmetic)
                entries |= _local_errors(given, got, f"{name}{LOCAL}", allowed)
            found.append(Layer(name, node.name, node.op_type, count, size, **entries))
    return tuple(found)


def first_failing(layers: Sequence[Layer], cumulative: bool = True) -> Layer | None:
    """Return the first layer whose local error is too large, else the first whose cumulative is.

    Args:
        layers: errors by layer, in the model's order.
        cumulative: whether cumulative errors count. They prove nothing if the outputs passed, as
            later layers have made up for them, or if taps moved the outputs.
    """
    for key in ("share", "cumulative_share") if cumulative else ("share",):
        for layer in layers:
            value = getattr(layer, key)
            if value is not None and value > 1:
                return layer
    return None


def join(truth: Mapping[str, np.ndarray], made: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return for each value of the truth the name in `made` that means the same layer.

    Names agree as the exporter wrote them, or without the ending that a converter adds to a cast
    or to the first of several. A name whose value has another shape is another layer.
    """
    plain: dict[str, str] = {}
    for name in made:
        plain.setdefault(CASTS.sub("", name), name)
    for name in [name for name in plain if name.endswith("_0") and name not in truth]:
        plain.setdefault(name.removesuffix("_0"), plain[name])
    joined = {}
    for name, value in truth.items():
        other = name if name in made else plain.get(name, "")
        if other and np.shape(made[other]) == value.shape:
            joined[name] = other
    return joined


def _local_errors(given: Local, got: np.ndarray, name: str, allowed: Tolerance) -> dict[str, Any]:
    """Return the local error of one output, its two parts, and its share of the tolerance.

    Args:
        given: the model of layers.
        got: the backend's value, as its dtype stores it.
        name: the output.
        allowed: the layer's tolerance.
    """
    exact, stored = given.truth[name], given.stored[name]
    return {
        "local": _largest(got, exact),
        "weights": _largest(stored, exact),
        "arithmetic": _largest(got, stored),
        "share": errors.share(got, exact, allowed),
        "reason": allowed.reason,
    }


def _largest(got: np.ndarray, truth: np.ndarray) -> float:
    """Return the largest error; infinite for another shape or a lost value."""
    if got.shape != truth.shape:
        return math.inf
    return errors.measure(got, truth).largest


def _outputs(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], weights: str
) -> dict[str, np.ndarray]:
    values = oracle.evaluate(oracle.widen(model, weights), inputs)
    return {info.name: values[info.name] for info in model.graph.output}
