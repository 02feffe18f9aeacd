"""The small PyTorch model that is exported to ONNX and to Core ML (labs 09 and 15).

Imports torch at the top, so it is itself imported through `models.load_mini_classifier` only.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx
import torch
from torch import nn

__all__ = ["MiniClassifier", "build_module", "export"]


class MiniClassifier(nn.Module):
    """Two convolutions, adaptive average pooling and two linear layers.

    Maps float32 images [N, 3, 32, 32] (any size from 4 x 4 on) to logits [N, 10].
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.linear1 = nn.Linear(64 * 4 * 4, 128)
        self.linear2 = nn.Linear(128, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of `image`."""
        hidden = torch.relu(self.conv1(image))
        hidden = self.pool(torch.relu(self.conv2(hidden)))
        hidden = torch.relu(self.linear1(torch.flatten(hidden, 1)))
        logits: torch.Tensor = self.linear2(hidden)
        return logits


def build_module() -> MiniClassifier:
    """Return MiniClassifier, ready to evaluate, with fixed random weights by He's rule.

    NumPy draws them, so that they do not change with the version of torch.
    """
    with torch.random.fork_rng():  # the caller's random numbers go on as if nothing was built
        module = MiniClassifier()
    random = np.random.default_rng(0)
    for tensor in module.state_dict().values():
        variance = 2 / tensor[0].numel() if tensor.ndim > 1 else 0.01
        values = random.standard_normal(tuple(tensor.shape), np.float32)
        tensor.copy_(torch.from_numpy(values * np.float32(variance**0.5)))
    return module.eval()


def export() -> onnx.ModelProto:
    """Return MiniClassifier for one image as an ONNX model, exported by torch.

    The exporter built on torch.export is used where onnxscript is installed, else the older one.
    """
    dynamo = importlib.util.find_spec("onnxscript") is not None
    file = io.BytesIO()
    with _quiet():
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
    _strip_metadata(model)
    return model


def _strip_metadata(model: onnx.ModelProto) -> None:
    # The exporter notes a stack trace at every node: paths of this machine, half of the file.
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.initializer, *graph.value_info,
                 *graph.input, *graph.output):  # fmt: skip
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


@contextmanager
def _quiet() -> Iterator[None]:
    # The exporter warns of its own deprecations and of torchvision; nothing a caller can mend.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
