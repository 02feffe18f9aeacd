"""Program of a Core ML package beside the oracle: its layers, its truth, its weights unrounded.

A converted program has other operators than the exported graph, so its layers are its own. They are
fed the oracle's values where names or values join. Its float32 form knows the weights before
rounding.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from vklab.apps.compare.backend import Dtypes
from vklab.apps.compare.judging import errors
from vklab.apps.compare.layerwise import layers
from vklab.apps.compare.layerwise.layers import Layer, Local
from vklab.apps.compare.models import inputs as graph_inputs
from vklab.apps.compare.truth import oracle
from vklab.apps.compare.truth.oracle import Oracle
from vklab.errors import ModelError
from vklab.runtime import tolerances

# What coremltools adds to the names of values and weights that it makes float16.
MARKS = re.compile(r"_(cast|to)_fp(16|32)")
SAMPLE = 64  # elements
NOTE = (
    "the weights before rounding are unknown, so the program's own weights are those of its truth"
)


@dataclass(frozen=True, eq=False)
class Program:
    """A package's program as an ONNX model, operator by operator.

    Attributes:
        model: the program with the weights that the package stores.
        exact: the same with the weights before rounding, where they are known.
        truth: every value in float64 by the program's names, the oracle's where names join.
        names: name to show by that of the program's value: the oracle's, or one without marks.
        notes: sentences on the weights and on the conversion.
    """

    model: onnx.ModelProto
    exact: onnx.ModelProto
    truth: Oracle
    names: dict[str, str]
    notes: tuple[str, ...] = ()

    def local(self, dtypes: Dtypes) -> Local:
        """Return the model that measures local errors of the program's operators."""
        return layers.local(self.model, self.truth.layers, dtypes, exact=self.exact)

    def renamed(self, measured: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Return layers with the oracle's names where they join."""
        return tuple(replace(each, name=self.names.get(each.name, each.name)) for each in measured)


def of_package(
    model: onnx.ModelProto, wide: onnx.ModelProto | None, truth: Oracle,
    inputs: Mapping[str, np.ndarray],
) -> Program:  # fmt: skip
    """Return the program of a package with its truth.

    Args:
        model: the program with the weights that the package stores.
        wide: the same model converted in float32; None if there is none.
        truth: the oracle.
        inputs: arrays by the oracle's input names, in the model's order.
    """
    exact, known = unrounded(model, wide) if wide is not None else (model, 0)
    narrow = any(tensor.data_type == TensorProto.FLOAT16 for tensor in model.graph.initializer)
    notes = [NOTE] if narrow and not known else []
    names_in = graph_inputs.names(model)
    if len(names_in) != len(inputs):
        raise ModelError(
            f"the package has the inputs {', '.join(names_in)}, the model has {', '.join(inputs)}"
        )
    given = dict(zip(names_in, inputs.values(), strict=True))
    values = oracle.evaluate(oracle.widen(exact), given)
    joined = layers.join(truth.layers, values)
    joined |= _alike(truth.layers, values, joined)
    right = {other: truth.modules.get(name, truth.layers[name]) for name, other in joined.items()}
    right = {
        name: value
        for name, value in right.items()
        if value.dtype.kind == "f" and value.shape == values[name].shape
    }
    allowed = tolerances.model("float32")
    shares = {name: errors.share(values[name], value, allowed) for name, value in right.items()}
    moved = [name for name in values if shares.get(name, 0) > 1]
    if moved:
        notes.append(
            f"in float64 the program departs from the model at {moved[0]!r}, by "
            f"{shares[moved[0]]:.3g} times the tolerance of float32: the conversion "
            "changed it, or the weights are rounded"
        )
        right = {name: value for name, value in right.items() if shares[name] <= 1}
    outputs = {info.name: values[info.name] for info in model.graph.output}
    plain = {name: MARKS.sub("", name) for name in values}
    names = {name: short for name, short in plain.items() if short not in values}
    names |= {other: name for name, other in joined.items()}
    return Program(model, exact, Oracle(truth.kind, outputs, values | right), names, tuple(notes))


def _alike(
    truth: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray], joined: Mapping[str, str]
) -> dict[str, str]:
    """Return further pairs of names: values that agree in float64 with only one of the oracle.

    Exporters name one layer differently where a node has several results, as a batch norm has: one
    takes the name of the node, the other that of its first result.

    Args:
        truth: values of the oracle by name.
        values: values of the program by name, in its order.
        joined: pairs that are known.
    """
    taken = {*joined.values()}
    left = {
        name: value
        for name, value in truth.items()
        if name not in joined and value.dtype.kind == "f"
    }
    found = {
        name: [
            other for other, made in values.items() if other not in taken and _agree(made, value)
        ]
        for name, value in left.items()
    }
    rivals = Counter(other for others in found.values() for other in others)
    return {
        name: others[0]
        for name, others in found.items()
        if others and all(rivals[other] == 1 for other in others)
    }


def _agree(made: np.ndarray, value: np.ndarray) -> bool:
    """Tell whether two arrays are the same within float32's tolerance; a sample is tried first."""
    if made.shape != value.shape or made.dtype.kind != "f" or value.size < 2:
        return False
    allowed, step = tolerances.model("float32"), max(1, value.size // SAMPLE)
    size = np.abs(value).max()
    apart = np.abs(made.ravel()[::step] - value.ravel()[::step])
    if (apart > (allowed.atol + allowed.rtol) * size).any():
        return False
    return errors.share(made, value, allowed) <= 1


def unrounded(model: onnx.ModelProto, wide: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Return a program with the weights of its float32 form, and how many were found.

    A weight is taken if its name joins and if it rounds to the stored one, bit by bit.

    Args:
        model: the program with float16 weights.
        wide: the same model converted in float32.
    """
    known = {MARKS.sub("", tensor.name): tensor for tensor in wide.graph.initializer}
    made, count = onnx.ModelProto(), 0
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        other = known.get(MARKS.sub("", tensor.name))
        if tensor.data_type != TensorProto.FLOAT16 or other is None:
            continue
        full, stored = numpy_helper.to_array(other), numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            same = full.shape == stored.shape and np.array_equal(full.astype(np.float16), stored)
        if same and other.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(full, tensor.name))
            count += 1
    return made, count
