"""Factories of the small models: a module of ours, its weights, and example inputs.

Each factory takes the number of examples and returns the module in eval mode and a tuple of its
inputs, so that `vklab.apps.compare.models:resnet18` names a model. Trained weights and BatchNorm
statistics are files of `data/`; NumPy draws the others by seed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vklab.apps.compare.models import texts
from vklab.errors import SetupError

__all__ = ["INPUTS", "MODELS", "digit_images", "encoder", "example", "factory", "load",
           "load_networks", "mini_classifier", "mobilenet_v2_half", "mobilenet_v3_small",
           "read_arrays", "resnet18", "seeded", "text_classifier", "text_labels"]  # fmt: skip

DATA = Path(__file__).resolve().parents[4] / "data"
IMAGE = (3, 64, 64)
Made = tuple[Any, tuple[Any, ...]]


def load(module: str, what: str, install: str = "pip install torch") -> ModuleType:
    """Import a module of this folder that needs PyTorch; SetupError where it is not installed.

    Args:
        module: its name.
        what: which models it has, and how: the beginning of the error's sentence.
        install: the command that repairs it.
    """
    try:
        return importlib.import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SetupError(f"{what} in PyTorch, which is not installed", install) from error


def load_networks() -> ModuleType:
    """Import `vklab.apps.compare.models.networks`, the classes, which needs PyTorch."""
    return load("networks", "the models of the parity reports are written")


def read_arrays(name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file of `data/`, by name."""
    path = DATA / name
    if not path.is_file():
        raise SetupError(
            f"{path} is not there: the data are in the source tree only",
            "clone the repository and run from it",
        )
    with np.load(path) as arrays:
        return dict(arrays)


def seeded(count: int, *shape: int, seed: int = 1) -> NDArray[np.float32]:
    """Return float32 [count, *shape], standard normal.

    Args:
        count: the number of examples.
        shape: the shape of one.
        seed: another one than that of the weights.
    """
    return np.random.default_rng(seed).standard_normal((count, *shape), np.float32)


def digit_images(count: int | None = None, held_out: bool = True) -> NDArray[np.float32]:
    """Return handwritten digits as float32 [count, 3, 32, 32], grey in three equal channels."""
    arrays = read_arrays("digits.npz")
    images = arrays["images"][arrays["held_out"] == held_out][:count]
    framed = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return np.repeat(framed, 3, axis=1)


def mini_classifier(count: int | None = 1) -> Made:
    """Return MiniClassifier trained on the digits, and digits that are held out."""
    module = _with_arrays("MiniClassifier", "digits_mini_classifier")
    return module, _inputs(digit_images(count))


def resnet18(count: int = 1) -> Made:
    """Return ResNet-18 with He's weights and the statistics of one batch, and random images."""
    module = _with_arrays("ResNet18", "resnet18_statistics", draws=True)
    return module, _inputs(seeded(count, *IMAGE))


def mobilenet_v2_half(count: int | None = 1) -> Made:
    """Return MobileNetV2 of half width trained on the digits, and digits that are held out."""
    module = _with_arrays("MobileNetV2Half", "digits_mobilenet")
    return module, _inputs(digit_images(count))


def mobilenet_v3_small(count: int = 1) -> Made:
    """Return MobileNetV3-small with He's weights, statistics of one batch, and random images."""
    module = _with_arrays("MobileNetV3Small", "mobilenet_v3_small_statistics", draws=True)
    return module, _inputs(seeded(count, *IMAGE))


def encoder(count: int = 1) -> Made:
    """Return a small transformer encoder with He's weights, and random vectors."""
    networks = load_networks()
    return networks.draw_weights(networks.Encoder()), _inputs(seeded(count, 32, 64))


def text_labels() -> NDArray[np.int64]:
    """Return int64 [texts], the novel of each passage that is held out."""
    held_out = texts.passages(DATA / texts.FILE).held_out
    return np.array([passage.label for passage in held_out], np.int64)


def text_classifier(count: int | None = 1) -> Made:
    """Return the text classifier trained on six novels, and passages that are held out."""
    networks = load_networks()
    arrays = read_arrays("text_classifier.npz")
    words = [str(word) for word in arrays.pop("words")]
    module = networks.TextClassifier(len(words), len(texts.NOVELS))
    held_out = texts.passages(DATA / texts.FILE).held_out[:count]
    tokens = texts.tokens([passage.text for passage in held_out], words)
    return networks.load_weights(module, arrays), _inputs(tokens)


MODELS: dict[str, Callable[[int], Made]] = {
    "mini_classifier": mini_classifier,
    "resnet18": resnet18,
    "mobilenet_v3_small": mobilenet_v3_small,
    "encoder": encoder,
    "text_classifier": text_classifier,
}
"""Every model by name; the function is its factory."""

INPUTS = {"mini_classifier": "image", "resnet18": "image", "mobilenet_v3_small": "image",
          "encoder": "vectors", "text_classifier": "tokens"}  # fmt: skip
"""The name of each model's input; the output is called `logits`."""


def factory(name: str) -> str:
    """Return the `module:function` of a model in MODELS."""
    return f"{__name__}:{MODELS[name].__name__}"


def example(name: str) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return the module of a model in MODELS, and one example by the name of its input."""
    module, (tensor,) = MODELS[name](1)
    return module, {INPUTS[name]: tensor.numpy()}


def _with_arrays(network: str, file: str, draws: bool = False) -> Any:
    """Return a network with the arrays of a file in `data/`.

    Args:
        network: its class in `networks`.
        file: name of the .npz file.
        draws: whether the weights are drawn first, because the file has statistics alone.
    """
    networks = load_networks()
    module = getattr(networks, network)()
    return networks.load_weights(
        networks.draw_weights(module) if draws else module, read_arrays(f"{file}.npz")
    )


def _inputs(array: NDArray[Any]) -> tuple[Any, ...]:
    networks = load_networks()
    return (networks.torch.from_numpy(np.ascontiguousarray(array)),)
