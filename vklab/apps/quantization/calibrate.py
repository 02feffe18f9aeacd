"""Run a model on calibration data and count the numbers of its values.

Decides the batches, and refuses data that says nothing about a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from vklab.apps.quantization.histogram import Histogram
from vklab.apps.quantization.model import Model
from vklab.errors import ModelError
from vklab.runtime import loading

# Samples of one run, where the model leaves their number open.
SAMPLES = 32
Load = Callable[[onnx.ModelProto], Any]


def check(model: Model, data: Mapping[str, np.ndarray]) -> None:
    """Raise ModelError for data that does not fit a model, or cannot calibrate it.

    Args:
        model: the model.
        data: an array for each input of the model; the first axis has the samples.
    """
    names = [value.name for value in model.inputs]
    if sorted(data) != sorted(names):
        raise ModelError(
            f"the calibration data has {', '.join(sorted(data)) or 'nothing'}; the "
            f"inputs of the model are {', '.join(names)}"
        )
    for value in model.inputs:
        array = data[value.name]
        dims = _dims(value)
        wanted = [dim or "any" for dim in dims]
        fits = array.ndim == len(dims) and all(
            not dim or dim == size for dim, size in zip(dims[1:], array.shape[1:], strict=False)
        )
        if not fits or (dims and dims[0] and array.shape[0] % dims[0]):
            raise ModelError(
                f"calibration data of {value.name} has shape {array.shape}; the model "
                f"takes {wanted}"
            )
        if not array.size:
            raise ModelError(f"the calibration data of {value.name} is empty")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelError(
                f"the calibration data of {value.name} has numbers that are not finite"
            )
        if array.dtype.kind == "f" and array.min() == array.max():
            raise ModelError(
                f"all calibration data of {value.name} is {array.flat[0]}; ranges "
                "need samples that differ"
            )
    if len({array.shape[:1] for array in data.values()}) > 1:
        raise ModelError("the inputs have different numbers of calibration samples")


def _dims(value: onnx.ValueInfoProto) -> list[int]:
    """Return the sizes of an input; 0 for an open one."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def batches(model: Model, data: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the data in batches that the model takes; a last smaller one if it takes any."""
    sizes = [dims[0] for dims in map(_dims, model.inputs) if dims]
    size = next((size for size in sizes if size), SAMPLES)
    count = len(next(iter(data.values())))
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in data.items()}


def tapped(proto: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return a model with more values as outputs."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    present = {value.name for value in made.graph.output}
    for name in dict.fromkeys(names):
        if name not in present:
            made.graph.output.append(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            )
    return made


def values(
    model: Model, data: Mapping[str, np.ndarray], names: Collection[str], load: Load | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the values of names, and the outputs of a model, for each batch of data.

    Args:
        model: the model.
        data: its inputs; the first axis has the samples.
        names: values that nodes of the model make.
        load: returns a session of a model; default vklab's, on the default device.
    """
    with (load or loading.load)(tapped(model.proto, names)) as session:
        for batch in batches(model, data):
            yield session.run(batch)


def histograms(
    model: Model, data: Mapping[str, np.ndarray], names: Collection[str], load: Load | None = None
) -> dict[str, Histogram]:
    """Return a histogram of each value over all data.

    Args:
        model: the model.
        data: its inputs; the first axis has the samples.
        names: values of the model, inputs among them.
        load: as in `values`.

    Raises ModelError for data that does not fit, and for a value that is not finite.
    """
    check(model, data)
    counted = {name: Histogram() for name in names}
    inner = [name for name in names if name not in data]
    for number, outputs in enumerate(values(model, data, inner, load)):
        fed = list(batches(model, data))[number]
        for name, histogram in counted.items():
            try:
                histogram.add(fed[name] if name in fed else outputs[name])
            except ModelError as error:
                raise ModelError(f"value {name!r} of the model: {error}") from None
    return counted
