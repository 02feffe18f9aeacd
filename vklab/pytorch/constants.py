"""Translation of PyTorch's constants to ONNX in the dtype that they have.

PyTorch's exporter rounds Python numbers to float32 first, so that 1e300 becomes infinite in
float64. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from onnxscript import INT64, ir
from onnxscript import opset23 as op

from vklab.errors import ModelError

__all__ = ["EXACT", "require_exact"]


UNKNOWN = -1
_KINDS = {bool: ir.DataType.BOOL, int: ir.DataType.INT64, float: ir.DataType.FLOAT}


def _constant(number: Any, dtype: int) -> Any:
    """Return a number as a scalar constant; cast one that is a value of the graph."""
    if not isinstance(number, (bool, int, float)):
        return number if dtype == UNKNOWN else op.Cast(number, to=dtype)
    if dtype == UNKNOWN:
        dtype = _KINDS[type(number)]
    tensor: Any = ir.tensor(np.array(number, ir.DataType(dtype).numpy()))
    return op.Constant(value=tensor)


def _scalar_tensor(
    s: float, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False
) -> Any:
    del layout, device, pin_memory
    return _constant(s, dtype)


def _full_like(
    self: Any, fill_value: float, dtype: int = UNKNOWN, layout: str = "", device: str = "",
    pin_memory: bool = False, memory_format: str = "",
) -> Any:  # fmt: skip
    del layout, device, pin_memory, memory_format
    kind = self.dtype if dtype == UNKNOWN else dtype
    return op.Expand(_constant(fill_value, kind), op.Shape(self))


def _full(
    size: INT64, fill_value: float, dtype: int = UNKNOWN, layout: str = "", device: str = "",
    pin_memory: bool = False,
) -> Any:  # fmt: skip
    del layout, device, pin_memory
    return op.Expand(_constant(fill_value, dtype), size)


def _masked_fill(self: Any, mask: Any, value: float) -> Any:
    return op.Where(mask, _constant(value, self.dtype), self)


# The custom_translation_table of torch.onnx.export.
EXACT: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.scalar_tensor.default: _scalar_tensor,
    torch.ops.aten.full.default: _full,
    torch.ops.aten.full_like.default: _full_like,
    torch.ops.aten.masked_fill.Scalar: _masked_fill,
}


def require_exact(nodes: Iterable[torch.fx.Node]) -> None:
    """Raise ModelError for a float64 operator with a factor, as alpha, that would be rounded."""
    for node in nodes:
        made = node.meta.get("val")
        if not isinstance(made, torch.Tensor) or made.dtype != torch.float64:
            continue
        for name, number in node.kwargs.items():
            if isinstance(number, float) and torch.tensor(number).item() != number:
                raise ModelError(f"{node.target} in float64 takes {name}={number}, which PyTorch's "
                                 "exporter rounds to float32; multiply by it instead")  # fmt: skip
