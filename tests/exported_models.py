"""Models exported from PyTorch: their structure is in tests/models, their weights are made here.

`export_models.py` writes the files: a weight without data has its mean and deviation as text.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

FOLDER = Path(__file__).resolve().parent / "models"
VOCABULARY = 199


def load(name: str, seed: int = 0) -> onnx.ModelProto:
    """Return a model with weights that a seed decides."""
    model = onnx.load(FOLDER / f"{name}.onnx")
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith("normal "):
            mean, deviation = map(np.float32, tensor.doc_string.split()[1:])
            random = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
            values = random.standard_normal(tuple(tensor.dims), np.float32) * deviation + mean
            tensor.raw_data = values.tobytes()
    return model


def inputs_of(
    model: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 0
) -> dict[str, np.ndarray]:
    """Return random inputs; `sizes` says how long the axes with names are."""
    random = np.random.default_rng(seed)
    made = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if "mask" in value.name:  # the second row is shorter
            array = np.ones(shape)
            array[1:, -2:] = 0
        elif dtype.kind == "i":
            array = random.integers(0, 2 if "type" in value.name else VOCABULARY, shape)
        else:
            array = random.standard_normal(shape)
        made[value.name] = array.astype(dtype)
    return made
