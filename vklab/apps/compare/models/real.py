"""Networks of torchvision and transformers with random weights, and their export to ONNX.

Imports torch at the top, so import this module through `catalogue.load_real` only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import nn

from vklab.apps.compare import backend
from vklab.apps.compare.models import exporting, networks

TOKENS, WORDS = 128, 30522
# Last factors of residual branches. Undamped, ResNet-50 makes errors of its output out of rounding
# errors that are a hundred times smaller, and no tolerance would tell right from wrong.
LAST, DAMPING = ("bn3.weight", "conv.3.weight", "layer_scale"), 0.25
INPUTS = {"bert_base": ("tokens", "kinds", "positions", "mask")}


def load_torchvision() -> ModuleType:
    """Import torchvision, or raise SetupError with the command that installs it."""
    return backend.load_package(
        "torchvision", "torchvision, which defines the model,", "pip install torchvision"
    )


def load_transformers() -> ModuleType:
    """Import transformers, or raise SetupError with the command that installs it."""
    return backend.load_package(
        "transformers", "transformers, which defines the model,", "pip install transformers"
    )


class Bert(nn.Module):
    """BERT base without its pooled output; all four inputs are given, so none is a constant."""

    def __init__(self) -> None:
        super().__init__()
        transformers = load_transformers()
        config = transformers.BertConfig(attn_implementation="eager")
        self.model = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """Return a vector for each token.

        The mask is made into the term that is added to the scores here: transformers would ask
        the host whether it masks anything, which no CUDA graph can hold.
        """
        tokens, kinds, positions, mask = given
        dtype = self.model.embeddings.word_embeddings.weight.dtype
        added = (1 - mask[:, None, None].to(dtype)) * torch.finfo(dtype).min
        made: torch.Tensor = self.model(
            tokens,
            token_type_ids=kinds,
            position_ids=positions,
            attention_mask=added,
            use_cache=False,
        ).last_hidden_state
        return made


def _vision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        module: nn.Module = getattr(load_torchvision().models, name)()
        return module

    return build


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": _vision("resnet50"),
    "vit_b_16": _vision("vit_b_16"),
    "convnext_tiny": _vision("convnext_tiny"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "efficientnet_b0": _vision("efficientnet_b0"),
    "bert_base": Bert,
}
"""Networks by name, as torchvision and transformers define them."""


def write(name: str, folder: Path) -> None:
    """Write a network as model.onnx, as module.pt, and its inputs as inputs.npz.

    The weights follow He's rule, drawn by NumPy, so that they are the same with every version of
    torch. BatchNorm has the statistics of a batch of random images. Residual branches are damped.

    Args:
        name: key of NETWORKS.
        folder: folder for the files.
    """
    torch.manual_seed(0)  # of dropout, while statistics are measured
    module = networks.draw_weights(NETWORKS[name]())
    for key, tensor in module.state_dict().items():
        if any(word in key for word in LAST):
            tensor *= DAMPING
    random = np.random.default_rng(1)
    names = INPUTS.get(name, ("image",))
    if name in INPUTS:
        tokens = random.integers(0, WORDS, (1, TOKENS))
        arrays = [tokens, np.zeros_like(tokens), np.arange(TOKENS)[None], np.ones_like(tokens)]
    else:
        images = torch.from_numpy(random.standard_normal((4, 3, 224, 224), np.float32))
        if any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
            networks.measure_statistics(module, images)
        arrays = [images[:1].numpy()]
    exporting.write(module, dict(zip(names, arrays, strict=True)), "output", folder)
