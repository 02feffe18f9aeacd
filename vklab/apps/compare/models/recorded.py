"""Real models without torchvision: graphs recorded in `data/graphs`, with random weights.

The files have no weights; `data/make_graphs.py` wrote them.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import onnx

from vklab.apps.compare.models import builder

FOLDER = Path(__file__).resolve().parents[4] / "data/graphs"
# The recorded BERT has another batch than the model of the suite.
NAMES = ("resnet50",)


def build(name: str) -> onnx.ModelProto | None:
    """Return a recorded graph with weights by He's rule; None if there is no such graph here.

    Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015, equation 10
    """
    path = FOLDER / f"{name}.onnx"
    if name not in NAMES or not path.is_file():
        return None
    model = onnx.load(path)
    facts = {each.key: each.value for each in model.metadata_props}
    weights = set(json.loads(facts["weights"]))
    model.ClearField("metadata_props")
    random = np.random.default_rng(0)
    for value in [value for value in model.graph.input if value.name in weights]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = random.standard_normal(shape, np.float32)
        array *= np.float32((2 / prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1)
        builder.add_tensor(model.graph, value.name, array)
        model.graph.input.remove(value)
    return model
