"""Shares of a tolerance by layer: of a whole run, and of a layer that is fed the truth.

They are computed with a student's verdict, for backends of this module, or come from a record of
`vklab parity --layers`. Visited by lab 17.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vklab_course.data import data
from vklab_labs.lab_17 import mini_network as network

__all__ = ["BACKENDS", "Layer", "judged_recordings", "measured", "recorded", "tolerance_of"]

Layer = dict[str, Any]
Verdict = Callable[[np.ndarray, np.ndarray, float, float], tuple[bool, float]]
EPSILON = {"float32": 2.0**-23, "tfloat32": 2.0**-10, "float16": 2.0**-10}
# Of a whole model: rtol and atol, as the runtime's table has them.
WHOLE = {"float32": (1e-4, 5e-6), "tfloat32": (4e-3, 2e-2), "float16": (4e-3, 2e-2)}
# Name, dtype, and whether the second convolution is wrong.
BACKENDS = {
    "float32": ("float32", False),
    "float16": ("float16", False),
    "float32, planted": ("float32", True),
    "float16, planted": ("float16", True),
}


def tolerance_of(layer: str, dtype: str) -> tuple[float, float]:
    """Return rtol and atol of one layer: 8 roundings, or the root of its terms."""
    epsilon = EPSILON[dtype]
    return 2 * epsilon, epsilon * max(8.0, math.sqrt(network.TERMS.get(layer, 0)))


def measured(verdict: Verdict, backend: str) -> tuple[list[Layer], bool]:
    """Return the layers of a backend, as `to_blame` reads them, and whether its outputs passed.

    Args:
        verdict: judges one array.
        backend: one of BACKENDS.
    """
    dtype, wraps = BACKENDS[backend]
    weights, image = network.trained_weights(), _image()
    truth = network.run(network.layers_of(weights), image)
    layers = network.layers_of(weights, np.dtype(dtype).type, wraps)
    whole = network.run(layers, image)
    found: list[Layer] = []
    before = image
    for name, function in layers.items():
        # The truth is rounded to the dtype first: the layer could not read it otherwise.
        held = before.astype(dtype).astype(np.float64)
        right = network.layers_of(_rounded(weights, dtype))[name](held)
        alone = function(held).astype(np.float64)
        local = verdict(alone, right, *tolerance_of(name, dtype))[1]
        cumulative = verdict(whole[name].astype(np.float64), truth[name], *WHOLE[dtype])
        found.append({"name": name, "local": local, "cumulative": cumulative[1]})
        before = truth[name]
    return found, bool(cumulative[0])


def _rounded(weights: network.Weights, dtype: str) -> dict[str, np.ndarray]:
    return {name: array.astype(dtype).astype(np.float64) for name, array in weights.items()}


def _image() -> np.ndarray:
    with np.load(data("recorded/parity_h200_mini_classifier.npz")) as arrays:
        return np.asarray(arrays["inputs/0/image"])


def judged_recordings(verdict: Verdict) -> list[tuple[str, str, bool, float]]:
    """Return backend, arithmetic, passed and share of the results that an H200 has left."""
    with np.load(data("recorded/parity_h200_mini_classifier.npz")) as arrays:
        rows = json.loads(str(arrays["manifest.json"]))["recordings"]
        outputs = [arrays[f"outputs/{number}/output"] for number in range(len(rows))]
    truth = network.run(network.layers_of(network.trained_weights()), _image())["linear2"]
    found = []
    for row, output in zip(rows, outputs, strict=True):
        dtype = row["dtypes"]["arithmetic"]
        passed, share = verdict(output.astype(np.float64), truth, *WHOLE[dtype])
        found.append((row["backend"], dtype, bool(passed), float(share)))
    return found


def recorded() -> tuple[dict[str, list[Layer]], Mapping[str, Any]]:
    """Return the layers of real backends by name, and where the record comes from."""
    record = json.loads(data("recorded/parity_layers.json").read_text("utf-8"))
    return record["layers"], record["provenance"]
