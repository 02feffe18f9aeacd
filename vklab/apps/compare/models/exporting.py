"""MiniClassifier with random weights, and the export of modules from PyTorch to ONNX.

Imports torch at the top, so import this module through `graphs.load_mini_classifier` only.
Visited by lab 09.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from vklab.apps.compare.models import networks


def build_module() -> torch.nn.Module:
    """Return MiniClassifier in eval mode, with fixed random weights by He's rule."""
    with torch.random.fork_rng():  # leave the state of the caller's generator unchanged
        module = networks.MiniClassifier()
    return networks.draw_weights(module)


def export() -> onnx.ModelProto:
    """Return MiniClassifier for one image as an ONNX model, exported by torch.

    With onnxscript installed, the exporter on torch.export does so, otherwise the older one.
    """
    dynamo = importlib.util.find_spec("onnxscript") is not None
    file = io.BytesIO()
    with quiet():
        program = torch.onnx.export(
            build_module(),
            (torch.zeros(1, 3, 32, 32),),
            None if dynamo else file,
            input_names=["image"],
            output_names=["logits"],
            opset_version=18,
            dynamo=dynamo,
            verbose=False,
        )
    model = onnx.load_model_from_string(file.getvalue()) if program is None else program.model_proto
    strip_metadata(model)
    return model


def exported(
    module: torch.nn.Module, inputs: Mapping[str, NDArray[Any]], output: str
) -> onnx.ModelProto:
    """Return a module as an ONNX model, exported by torch.

    Args:
        module: in eval mode, with one output.
        inputs: an example of each input, by the name that it gets.
        output: name of the output.
    """
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            tuple(map(torch.from_numpy, inputs.values())),
            None,
            input_names=list(inputs),
            output_names=[output],
            opset_version=18,
            dynamo=True,
            verbose=False,
        )
    model: onnx.ModelProto = program.model_proto
    strip_metadata(model)
    return model


def write(
    module: torch.nn.Module, inputs: Mapping[str, NDArray[Any]], output: str, folder: Path
) -> None:
    """Write a module as model.onnx and as module.pt, and its inputs as inputs.npz.

    Args:
        module: as in `exported`.
        inputs: as in `exported`.
        output: name of the output.
        folder: folder for the files.
    """
    onnx.save(exported(module, inputs, output), folder / "model.onnx")
    arrays: dict[str, Any] = dict(inputs)
    np.savez(folder / "inputs.npz", **arrays)
    torch.save(module, folder / "module.pt")


def strip_metadata(model: onnx.ModelProto) -> None:
    """Remove what the exporter says of its own code, in place."""
    # The exporter adds a stack trace to every node: local paths that take half of the file.
    graph = model.graph
    for part in (
        model,
        graph,
        *graph.node,
        *graph.initializer,
        *graph.value_info,
        *graph.input,
        *graph.output,
    ):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


@contextmanager
def quiet(name: str = "torch.onnx", least: int = logging.ERROR) -> Iterator[None]:
    """Silence the warnings of an exporter, and what its logger says below a level."""
    # The exporter warns of its own deprecations and of torchvision; a caller cannot act on these.
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(least)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
