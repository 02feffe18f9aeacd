"""Converter: a PyTorch module in, a Core ML model of coremltools out.

Imports coremltools and torch at the top, so it is imported by `convert` only.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coremltools
import numpy as np
import torch
from coremltools.optimize import coreml as optimize

from vklab.apps.compare.coreml import overrides
from vklab.apps.compare.coreml.options import Options, Sizes
from vklab.errors import ModelError

SPARSITY, PALETTE_BITS = 0.5, 4


def converted(
    module: Any, examples: tuple[Any, ...], options: Options, inputs: tuple[str, ...]
) -> Any:
    """Return the MLModel of a module.

    Args:
        module: a torch.nn.Module in eval mode.
        examples: its inputs.
        options: the checked choices.
        inputs: names of the inputs, for TorchScript.

    Raises ModelError with coremltools' reason.
    """
    with _quiet(), overrides.registered():
        try:
            source, more = _source(module, examples, options, inputs)
            model = coremltools.convert(source, skip_model_load=True, **more, **_target(options))
            return _compressed(model, options.weights)
        except ModelError:
            raise
        except Exception as error:  # coremltools raises what its parts raise
            raise ModelError(f"coremltools refuses the model: {type(error).__name__}: "
                             f"{error}") from error  # fmt: skip


def save(model: Any, path: Path) -> None:
    """Write the package; an existing one is replaced."""
    if path.is_dir():
        shutil.rmtree(path)
    with _quiet():
        model.save(str(path))


def _source(module: Any, examples: tuple[Any, ...], options: Options,
            inputs: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Return what `coremltools.convert` takes, and its arguments for this frontend."""
    if options.frontend == "export":
        shapes = _dynamic(examples, options.shapes[0]) if options.shapes else None
        examples = (_opened(examples[0], options.shapes), *examples[1:])
        program = torch.export.export(module, examples, dynamic_shapes=shapes)
        # Without this step the program is of torch's training dialect, which is refused.
        return program.run_decompositions({}), {}
    names = inputs or tuple(f"input{index}" for index in range(len(examples)))
    types = [
        coremltools.TensorType(name=name, shape=_shape(example, options.shapes if not i else ()),
                               dtype=_dtype(example))
        for i, (name, example) in enumerate(zip(names, examples, strict=True))
    ]  # fmt: skip
    with torch.no_grad():
        trace = torch.jit.trace(module, examples)
    return trace, {"inputs": types, "outputs": [coremltools.TensorType(name="logits")]}


def _opened(example: Any, shapes: tuple[Sizes, ...]) -> Any:
    """Return the example with two of an open dimension that had one: torch.export fixes a 1."""
    for axis, size in enumerate(shapes[0] if shapes else ()):
        if isinstance(size, tuple) and example.shape[axis] == 1:
            example = example.repeat_interleave(2, axis)
    return example


def _dynamic(examples: tuple[Any, ...], sizes: Sizes) -> tuple[dict[int, Any], ...]:
    """Return the open dimensions of the first input, as torch.export takes them."""
    dims = {
        axis: torch.export.Dim(f"size{axis}", min=size[0], max=size[1])
        for axis, size in enumerate(sizes) if isinstance(size, tuple)
    }  # fmt: skip
    return (dims, *({} for _ in examples[1:]))


def _shape(example: Any, shapes: tuple[Sizes, ...]) -> Any:
    """Return the shape of one input: fixed, with ranges, or one of several."""
    if not shapes:
        return tuple(example.shape)
    if len(shapes) > 1:
        return coremltools.EnumeratedShapes(shapes=[list(shape) for shape in shapes])
    return coremltools.Shape([
        coremltools.RangeDim(size[0], size[1]) if isinstance(size, tuple) else size
        for size in shapes[0]
    ])  # fmt: skip


def _dtype(example: Any) -> type:
    return np.float32 if example.is_floating_point() else np.int32


def _target(options: Options) -> dict[str, Any]:
    if options.kind == "neuralnetwork":
        return {"convert_to": "neuralnetwork"}
    found: dict[str, Any] = {
        "convert_to": "mlprogram",
        "compute_precision": getattr(coremltools.precision, options.precision.upper()),
    }
    if options.target:
        known = [name for name in coremltools.target.__members__  # macOS13 is iOS16's other name
                 if name.startswith(("iOS", "macOS"))]  # fmt: skip
        if options.target not in known:
            raise ModelError(f"unknown target {options.target!r}; choose among {', '.join(known)}")
        found["minimum_deployment_target"] = getattr(coremltools.target, options.target)
    return found


def _compressed(model: Any, weights: str) -> Any:
    if not weights:
        return model
    step, settings = {
        "palette": (optimize.palettize_weights,
                    optimize.OpPalettizerConfig(mode="uniform", nbits=PALETTE_BITS)),
        "sparse": (optimize.prune_weights,
                   optimize.OpMagnitudePrunerConfig(target_sparsity=SPARSITY)),
        "int8": (optimize.linear_quantize_weights,
                 optimize.OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8")),
    }[weights]  # fmt: skip
    return step(model, optimize.OptimizationConfig(global_config=settings))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars and warnings of coremltools about itself."""
    logger = logging.getLogger("coremltools")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
