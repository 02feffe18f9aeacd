"""Models exported from PyTorch: their structure is in tests/models, their weights are made here.

`export_models.py` writes the files: a weight without data has its mean and deviation as text.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

FOLDER = Path(__file__).resolve().parents[2] / "models"
VOCABULARY = 199
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
TEXT = [{"batch": 2, "sequence": 6}, {"batch": 3, "sequence": 9}]
STEPS = [
    {"batch": 2, "sequence": 3, "past": 5, "total": 8},
    {"batch": 1, "sequence": 1, "past": 11, "total": 12},
]
IMAGES = [{"batch": 1}, {"batch": 3}]
SIZES = {
    "bert": TEXT,
    "gpt2": TEXT,
    "llama": STEPS,
    "vit": IMAGES,
    "mobilenet_v3": IMAGES,
    "efficientnet_b0": IMAGES,
    "unet": [{"batch": 2, "height": 32, "width": 32}, {"batch": 1, "height": 20, "width": 44}],
    "lstm": TEXT,
}
# The exporter writes the sequence that it has seen into a Reshape: ONNX Runtime fails as well.
SIZES_OF = {"lstm": [{"batch": 2, "sequence": 6}, {"batch": 5, "sequence": 6}]}


def host_reasons(session: Any) -> dict[str, str]:
    """Return why nodes run on the host, without those of a device that computes no int64."""
    reasons = session.host_reasons
    return {node: reasons[node] for node in reasons if "lacks shaderInt64" not in reasons[node]}


def sizes_of(name: str) -> list[dict[str, int]]:
    """Return the two sizes in which a model runs."""
    return SIZES_OF.get(name) or SIZES[name.removesuffix("_script")]


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
