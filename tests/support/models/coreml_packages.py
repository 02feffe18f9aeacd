"""Conversion of the test models to Core ML packages, by coremltools on Linux."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
    warnings.simplefilter("ignore")
    logging.getLogger("coremltools").setLevel(logging.CRITICAL)
    import coremltools as ct

INPUT, OUTPUT = "given", "result"


def convert(
    module: nn.Module,
    given: torch.Tensor,
    precision: str = "float32",
    target: Any = None,
    *,
    is_network: bool = False,
    shape: Any = None,
) -> Any:
    """Return a module as coremltools' MLModel: an ML Program, or a NeuralNetwork."""
    dtype = np.int32 if given.dtype == torch.int32 else np.float32
    options: dict[str, Any] = (
        {"convert_to": "neuralnetwork"}
        if is_network
        else {
            "convert_to": "mlprogram",
            "compute_precision": {"float32": ct.precision.FLOAT32, "float16": ct.precision.FLOAT16}[
                precision
            ],
            "minimum_deployment_target": target or ct.target.iOS15,
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_network or shape is not None:
            program: Any = torch.jit.trace(module, given)
            options["inputs"] = [ct.TensorType(INPUT, shape or tuple(given.shape), dtype=dtype)]
        else:
            program = torch.export.export(module, (given,)).run_decompositions({})
            options["inputs"] = [ct.TensorType(INPUT, tuple(given.shape), dtype=dtype)]
        return ct.convert(program, outputs=[ct.TensorType(OUTPUT)], **options, skip_model_load=True)


def save(model: Any, folder: Path, name: str = "model") -> Path:
    """Save an MLModel under its usual ending; return the path."""
    is_program = model.get_spec().WhichOneof("Type") == "mlProgram"
    path = folder / f"{name}{'.mlpackage' if is_program else '.mlmodel'}"
    model.save(str(path))
    return path
