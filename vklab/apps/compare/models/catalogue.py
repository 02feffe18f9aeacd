"""Catalogue of the named models of `vklab bench` and `vklab parity`: families and suites.

One name means two sets of weights: `mini_classifier` is a graph with random weights here, and a
factory with trained ones in `models.MODELS`, which parity takes, since its report needs the module.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare import models
from vklab.apps.compare.models import graphs, memory, products, recorded
from vklab.errors import ModelError, SetupError

# The models of a run without a suite: each takes a second.
DEFAULT = ("mnist12", "mlp", "conv_few", "mini_classifier", "chain_add_100")
REAL = ("resnet50", "vit_b_16", "convnext_tiny", "mobilenet_v2", "efficientnet_b0", "bert_base")
SUITES: dict[str, tuple[str, ...]] = {
    "vkml": (*(f"chain_add_{n}" for n in (1, 10, 100, 1000, 10000)), "mnist12", "mlp",
             "conv_few", "conv_many", "matmul_1layers", "matmul_16layers"),
    "real": REAL,
    "products": products.PRODUCTS,
    "convolutions": products.CONVOLUTIONS,
    "memory": memory.MEMORY,
}  # fmt: skip
"""Models of each suite; `vkml` is the table that VKML publishes."""


def chosen(suites: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the models of suites and the named ones; the default models if there are none.

    Raises ModelError for an unknown suite.
    """
    found: list[str] = []
    for suite in suites:
        if suite not in SUITES:
            raise ModelError(f"unknown suite {suite!r}; choose among {', '.join(SUITES)}")
        found += SUITES[suite]
    return list(dict.fromkeys([*found, *names])) or list(DEFAULT)


def load_real() -> ModuleType:
    """Import `vklab.apps.compare.models.real`, or raise SetupError if torch is not installed."""
    return models.load(
        "real",
        "the real models are defined",
        "pip install torch torchvision transformers onnxscript",
    )


def is_operator(name: str) -> bool:
    """Tell whether a model is of one operator, so that its rows compare the device's time."""
    return products.is_one(name) or memory.is_one(name)


def build(name: str) -> onnx.ModelProto:
    """Build a model in this process; of the real ones, those whose graph is recorded."""
    if _is_exported(name):
        return graphs.load_mini_classifier().exported(*models.example(name), "logits")
    return products.build(name) or memory.build(name) or recorded.build(name) or graphs.build(name)


def write(name: str, folder: Path) -> None:
    """Write a named model as model.onnx, its inputs as inputs.npz, and its module as module.pt.

    A model that is built as a graph has no module; so has a real one whose packages are absent.
    """
    if _is_exported(name):
        graphs.load_mini_classifier().write(*models.example(name), "logits", folder)
        return
    if name in REAL:
        try:
            load_real().write(name, folder)
            return
        except SetupError:
            if name not in recorded.NAMES:
                raise
    model = build(name)
    inputs: dict[str, Any] = graphs.sample_inputs(model)
    np.savez(folder / "inputs.npz", **inputs)
    onnx.save(model, folder / "model.onnx")


def named(name: str) -> tuple[str, onnx.ModelProto]:
    """Return the name and the model of a suite's model, or of an .onnx file."""
    if name.endswith(".onnx"):
        return Path(name).stem, onnx.load(name)
    return name, build(name)


def names() -> list[str]:
    """Return the names of all models, of families without a number those of the suites."""
    return list(dict.fromkeys([*itertools.chain(*SUITES.values()), *graphs.MODELS, *models.MODELS]))


def is_known(name: str) -> bool:
    """Tell whether a name is that of a model."""
    return name in names() or is_operator(name) or re.fullmatch(r"chain_add_\d+", name) is not None


def _is_exported(name: str) -> bool:
    """Tell whether a model is a factory's alone; a graph of its name goes before."""
    return name in models.MODELS and name not in graphs.MODELS


def require_known(given: Sequence[str]) -> None:
    """Raise ModelError for a name of no model, FileNotFoundError for an .onnx file not there."""
    for name in given:
        if name.endswith(".onnx"):
            if not Path(name).is_file():
                raise FileNotFoundError(f"there is no model file {name}")
        elif not is_known(name):
            raise ModelError(f"unknown benchmark model {name!r}; choose among {', '.join(names())}")
