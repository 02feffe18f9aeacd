"""Conversion of a PyTorch module to a Core ML package.

Works on macOS and on Linux x86-64, where coremltools has a wheel; predicting needs macOS.
coremltools converts PyTorch, not ONNX.
"""

from __future__ import annotations

import importlib
import logging
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vklab.apps.compare.coreml import options as choices
from vklab.apps.compare.coreml.options import Options
from vklab.errors import ModelError, SetupError

INSTALL = 'pip install "coremltools>=9,<10" torch'


def convert(module: Any, examples: Sequence[Any], path: Path,
            options: Options | None = None, inputs: Sequence[str] = ()) -> Path:  # fmt: skip
    """Convert a module, save the package, and return its path.

    Args:
        module: a torch.nn.Module in eval mode with one output, which is called `logits` if the
            frontend is "script", and as the exporter's last node otherwise.
        examples: its inputs.
        path: the package, .mlpackage or .mlmodel by its kind; replaced if it exists.
        options: the choices; None for an ML Program in float16.
        inputs: the names of the inputs for "script"; "export" takes those of `forward`.

    Raises ModelError for choices that exclude each other or a model that coremltools refuses, and
    SetupError where coremltools is missing.
    """
    options = options or Options()
    choices.check(options)
    ending = ".mlpackage" if options.kind == "mlprogram" else ".mlmodel"
    if path.suffix != ending:
        raise ModelError(f"{path.name}: the file of the kind {options.kind} ends in {ending}")
    converter = load_converter()
    made = converter.converted(module, tuple(examples), options, tuple(inputs))
    converter.save(made, path)
    return path


def load_converter() -> Any:
    """Import `converter`, which needs coremltools and torch; SetupError where one is missing.

    What coremltools logs when it is imported is silenced: that prediction needs macOS, and that
    other packages are newer than it knows.
    """
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        return importlib.import_module("vklab.apps.compare.coreml.converter")
    except ModuleNotFoundError as error:
        if error.name not in ("coremltools", "torch"):
            raise
        system = f"{platform.system()} {platform.machine()}"
        raise SetupError(
            f"conversion needs {error.name}, which is not installed on this {system} "
            "(coremltools has wheels for macOS and Linux x86-64, up to Python 3.13)",
            INSTALL,
        ) from error
    finally:
        logging.disable(before)
