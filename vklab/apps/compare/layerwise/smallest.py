"""Smallest part of a model that fails on a backend when it is fed the truth, saved as .onnx.

One node alone is tried first. If it passes, the fault needs its neighbours (as a wrong fusion
does), and nodes before it are added until the part fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.judging import errors, lengths
from vklab.apps.compare.layerwise import cuts, layers
from vklab.apps.compare.layerwise.cuts import Cut
from vklab.apps.compare.truth import oracle
from vklab.errors import VklabError
from vklab.runtime import tolerances
from vklab.runtime.tolerances import Tolerance

# The most nodes of a part that are left out one by one at the end.
SINGLE = 16
Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Failing:
    """A part of a model that fails.

    Attributes:
        cut: the part, and the truth that it is fed.
        nodes: names of its nodes, or of their first outputs.
        expected: its true outputs in float64.
        share: its largest error as a share of the tolerance, above 1.
    """

    cut: Cut
    nodes: tuple[str, ...]
    expected: dict[str, np.ndarray]
    share: float


def find(
    model: onnx.ModelProto, truth: Mapping[str, np.ndarray], value: str, dtypes: Dtypes, run: Run
) -> Failing | None:
    """Return the smallest part that ends in a value and fails; None if no part does.

    Args:
        model: the whole model, with its external data.
        truth: every value of the oracle, `Oracle.layers`.
        value: name of the first value that is wrong, `layers.first_failing`.
        dtypes: the backend's dtypes.
        run: runs a model on the backend; a part that it refuses counts as one that passes.
    """
    nodes = _ancestors(model, truth, value)
    if not nodes:
        return None
    values = layers.fed(model, truth, dtypes.arithmetic)

    def attempt(kept: Sequence[onnx.NodeProto]) -> Failing | None:
        return _attempt(model, values, list(kept), value, dtypes, run)

    count, found = 1, attempt(nodes[-1:])
    while found is None and count < len(nodes):
        passed, count = count, min(2 * count, len(nodes))
        found = attempt(nodes[-count:])
        while found is not None and count - passed > 1:  # the least number of nodes that fails
            middle = (passed + count) // 2
            fewer = attempt(nodes[-middle:])
            passed, count = (passed, middle) if fewer else (middle, count)
            found = fewer or found
    if found is None:
        return None
    kept = nodes[-count:]
    for node in kept[:-1] if count <= SINGLE else []:
        fewer = attempt([other for other in kept if other is not node])
        if fewer is not None:
            found, kept = fewer, [other for other in kept if other is not node]
    return found


def save(failing: Failing, path: Path) -> list[Path]:
    """Write the part as `path`, its inputs and its expected outputs as .npz beside it.

    `vklab run PATH --input FILE.npz` runs the part.

    Args:
        failing: the part.
        path: the .onnx file; its folder is made.

    Returns the paths of the model, of the inputs and of the expected outputs.
    """
    model = onnx.ModelProto()
    model.CopyFrom(failing.cut.model)
    model.doc_string = (
        f"Smallest failing part: {', '.join(failing.nodes)}. Fed the right inputs, "
        f"its error is {failing.share:.3g} times the tolerance."
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    given, wanted = path.with_suffix(".inputs.npz"), path.with_suffix(".expected.npz")
    for file, arrays in ((given, failing.cut.inputs), (wanted, failing.expected)):
        with file.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
    return [path, given, wanted]


def _ancestors(
    model: onnx.ModelProto, truth: Mapping[str, np.ndarray], value: str
) -> list[onnx.NodeProto]:
    """Return the layers that a value depends on, in order; the last one computes it."""
    wanted, found = {value}, []
    for node in reversed(cuts.layer_nodes(model, truth)):
        if wanted & {*node.output}:
            found.append(node)
            wanted |= {*cuts.reads(node)}
    return found[::-1]


def _attempt(
    model: onnx.ModelProto, values: Mapping[str, np.ndarray], nodes: list[onnx.NodeProto],
    value: str, dtypes: Dtypes, run: Run,
) -> Failing | None:  # fmt: skip
    """Run some nodes, and return them if they fail.

    Args:
        model: the whole model.
        values: every value by name, in numbers that the backend's dtype can hold.
        nodes: the nodes, in order.
        value: their output.
        dtypes: the backend's dtypes.
        run: runs a model on the backend.
    """
    part = cuts.cut(model, nodes, values, [value])
    expected = {value: oracle.evaluate(oracle.widen(part.model), part.inputs)[value]}
    try:
        made = run(part.model, part.inputs)
    except VklabError:
        return None
    allowed = _tolerance(nodes, values, dtypes)
    got = made.get(value)
    share = math.inf
    if got is not None:
        kept = oracle.stored(np.asarray(got), dtypes.arithmetic)
        share = errors.share(kept, expected[value], allowed)
    names = tuple(node.name or node.output[0] for node in nodes)
    return Failing(part, names, expected, share) if share > 1 else None


def _tolerance(
    nodes: Sequence[onnx.NodeProto], values: Mapping[str, np.ndarray], dtypes: Dtypes
) -> Tolerance:
    """Return the tolerance of a part: a layer's for one node, a model's for several."""
    if len(nodes) > 1:
        return tolerances.model(dtypes.arithmetic, dtypes.weights)
    shapes = {name: array.shape for name, array in values.items()}
    return tolerances.layer(
        dtypes.arithmetic,
        dtypes.weights,
        dtypes.sums,
        lengths.terms(nodes[0], shapes),
        lengths.has_functions(nodes[0]),
    )
