"""Converter: a PyTorch module in, a Core ML model of coremltools out.

Two operators are registered for the time of a conversion: coremltools 9 fails in `int`, by which
traced transformers read sizes, with NumPy 2.4, and refuses adaptive pooling of open sizes.
Imports coremltools and torch at the top, so it is imported by `convert` only.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coremltools
import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.frontend.torch import ops
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY
from coremltools.converters.mil.mil.types.symbolic import is_symbolic
from coremltools.optimize import coreml as optimize

from vklab.apps.compare.coreml.options import Options, Sizes
from vklab.apps.compare.models import exporting
from vklab.errors import ModelError

SPARSITY, PALETTE_BITS = 0.5, 4


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """Convert `int` and `adaptive_avg_pool2d` by the functions of this module, inside `with`."""
    table = _TORCH_OPS_REGISTRY.name_to_func_mapping
    before = {name: table[name] for name in ("int", "adaptive_avg_pool2d")}
    table["int"] = integer

    def pool(context: Any, node: Any) -> None:
        image, size = ops._get_inputs(context, node, expected=2)
        rows, columns = (int(each) for each in (size.val if hasattr(size, "val") else size))
        if (rows, columns) == (1, 1) or not any(is_symbolic(each) for each in image.shape):
            before["adaptive_avg_pool2d"](context, node)
        else:
            context.add(adaptive_average(image, (rows, columns), node.name))

    table["adaptive_avg_pool2d"] = pool
    try:
        yield
    finally:
        table.update(before)


def integer(context: Any, node: Any) -> None:
    """Convert `int(x)` of a tensor with one element, known or not."""
    (value,) = ops._get_inputs(context, node, expected=1)
    if value.val is not None:
        known = np.int32(np.asarray(value.val).reshape(-1)[0])
        context.add(mb.const(val=known, name=node.name), node.name)
        return
    scalar = mb.squeeze(x=value) if value.rank else value
    context.add(mb.cast(x=scalar, dtype="int32", name=node.name))


def adaptive_average(image: Any, sizes: tuple[int, int], name: str) -> Any:
    """Return the mean of each of rows x columns cells, for an image of any height and width.

    Cell i of n covers the pixels from floor(i size / n) to ceil((i + 1) size / n). The mean is
    two matrix products, with a weight of 1 / pixels where a cell covers a pixel, 0 elsewhere.

    Args:
        image: a value [..., height, width].
        sizes: rows and columns of cells.
        name: of the result.
    """
    shape = mb.shape(x=image)
    rows, columns = (
        _cells(mb.gather(x=shape, indices=image.rank - 2 + axis, axis=0), count)
        for axis, count in enumerate(sizes)
    )
    tall = mb.matmul(x=rows, y=image)
    return mb.matmul(x=tall, y=columns, transpose_y=True, name=name)


def _cells(size: Any, count: int) -> Any:
    """Return float [count, size], the weight of each pixel in each cell."""
    index = np.arange(count, dtype=np.int32)[:, None]
    start = mb.floor_div(x=mb.mul(x=index, y=size), y=np.int32(count))
    # ceil(a / n) is floor((a + n - 1) / n).
    last = mb.add(x=mb.mul(x=index + np.int32(1), y=size), y=np.int32(count - 1))
    end = mb.floor_div(x=last, y=np.int32(count))
    pixels = mb.expand_dims(x=mb.range_1d(start=np.int32(0), end=size, step=np.int32(1)), axes=[0])
    covered = mb.logical_and(x=mb.greater_equal(x=pixels, y=start), y=mb.less(x=pixels, y=end))
    width = mb.cast(x=mb.sub(x=end, y=start), dtype="fp32")
    return mb.real_div(x=mb.cast(x=covered, dtype="fp32"), y=width)


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
    with _quiet(), registered():
        try:
            source, more = _source(module, examples, options, inputs)
            model = coremltools.convert(source, skip_model_load=True, **more, **_target(options))
            return _compressed(model, options.weights)
        except ModelError:
            raise
        except Exception as error:  # coremltools raises what its parts raise
            raise ModelError(
                f"coremltools refuses the model: {type(error).__name__}: {error}"
            ) from error


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
        coremltools.TensorType(
            name=name, shape=_shape(example, options.shapes if not i else ()), dtype=_dtype(example)
        )
        for i, (name, example) in enumerate(zip(names, examples, strict=True))
    ]
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
        for axis, size in enumerate(sizes)
        if isinstance(size, tuple)
    }
    return (dims, *({} for _ in examples[1:]))


def _shape(example: Any, shapes: tuple[Sizes, ...]) -> Any:
    """Return the shape of one input: fixed, with ranges, or one of several."""
    if not shapes:
        return tuple(example.shape)
    if len(shapes) > 1:
        return coremltools.EnumeratedShapes(shapes=[list(shape) for shape in shapes])
    return coremltools.Shape(
        [
            coremltools.RangeDim(size[0], size[1]) if isinstance(size, tuple) else size
            for size in shapes[0]
        ]
    )


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
        known = [
            name
            for name in coremltools.target.__members__  # macOS13 is iOS16's other name
            if name.startswith(("iOS", "macOS"))
        ]
        if options.target not in known:
            raise ModelError(f"unknown target {options.target!r}; choose among {', '.join(known)}")
        found["minimum_deployment_target"] = getattr(coremltools.target, options.target)
    return found


def _compressed(model: Any, weights: str) -> Any:
    if not weights:
        return model
    step, settings = {
        "palette": (
            optimize.palettize_weights,
            optimize.OpPalettizerConfig(mode="uniform", nbits=PALETTE_BITS),
        ),
        "sparse": (
            optimize.prune_weights,
            optimize.OpMagnitudePrunerConfig(target_sparsity=SPARSITY),
        ),
        "int8": (
            optimize.linear_quantize_weights,
            optimize.OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8"),
        ),
    }[weights]
    return step(model, optimize.OptimizationConfig(global_config=settings))


def _quiet() -> contextlib.ExitStack:
    """Silence progress bars and warnings of coremltools about itself."""
    silent = contextlib.ExitStack()
    silent.enter_context(exporting.quiet("coremltools", logging.CRITICAL))
    silent.enter_context(contextlib.redirect_stderr(io.StringIO()))
    return silent
