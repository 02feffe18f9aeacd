"""Two operators that coremltools converts otherwise: `int`, and adaptive average pooling.

Traced transformers read sizes of tensors with `int`, which fails in coremltools 9 with NumPy 2.4.
Adaptive average pooling is refused there for inputs of open size. Both are registered for the
time of one conversion. Imports coremltools at the top.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.frontend.torch import ops
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY
from coremltools.converters.mil.mil.types.symbolic import is_symbolic


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
