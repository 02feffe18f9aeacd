"""A model in `onnx.reference`, ONNX's own evaluator in Python: runs what ONNX Runtime does not.

It runs in the process of references, as its loops may take hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from vklab.base.worker import Failure


class Evaluator:
    """A serialized model in `onnx.reference`."""

    def __init__(self, model: bytes) -> None:
        self._evaluator = ReferenceEvaluator(model)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name; raise Failure where a package is missing."""
        names = self._evaluator.output_names
        try:
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(names, dict(inputs))
        except ImportError as error:  # ImageDecoder alone needs a package: Pillow
            raise Failure("absent", str(error), "pip install 'vklab[images]'") from error
        return {name: _plain(value) for name, value in zip(names, outputs, strict=True)}


def load(state: dict[Any, Any], number: int, model: bytes, folder: Path | None) -> None:
    """Load a model in the process of references.

    Args:
        state: the dict of the process.
        number: the number of the model.
        model: the serialized model.
        folder: not used, as the model holds its data.
    """
    state[number] = Evaluator(model)


def _plain(value: Any) -> Any:
    """Return an output as an array, a list of arrays, or None."""
    if value is None or isinstance(value, (np.ndarray, list)):
        return value
    return np.asarray(value)
