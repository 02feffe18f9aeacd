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

UNKNOWN = -1
_FLOAT64 = "float64"  # key of a value's meta: the value that it was rounded from
_KINDS = {bool: ir.DataType.BOOL, int: ir.DataType.INT64, float: ir.DataType.FLOAT}


def constant(number: Any, dtype: int) -> Any:
    """Return a number as a scalar constant; cast one that is a value of the graph."""
    if not isinstance(number, (bool, int, float)):
        if dtype == ir.DataType.DOUBLE:
            return float64(number)
        return number if dtype == UNKNOWN else op.Cast(number, to=dtype)
    if dtype == UNKNOWN:
        dtype = _KINDS[type(number)]
    tensor: Any = ir.tensor(np.array(number, ir.DataType(dtype).numpy()))
    return op.Constant(value=tensor)


def float64(number: Any) -> Any:
    """Return a number, or a value of the graph, as a float64 value of the graph."""
    if isinstance(number, (bool, int, float)):
        return constant(float(number), ir.DataType.DOUBLE)
    exact = number.meta.get(_FLOAT64)
    return op.Cast(number, to=ir.DataType.DOUBLE) if exact is None else exact


def symbolic(exact: Any) -> Any:
    """Return a float64 value as a symbolic float: tensors read it in float32, `float64` whole."""
    rounded: Any = op.Cast(exact, to=ir.DataType.FLOAT)
    rounded.meta[_FLOAT64] = exact
    return rounded


def _scalar_tensor(
    s: float, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False
) -> Any:
    del layout, device, pin_memory
    return constant(s, dtype)


def _full_like(
    self: Any, fill_value: float, dtype: int = UNKNOWN, layout: str = "", device: str = "",
    pin_memory: bool = False, memory_format: str = "",
) -> Any:  # fmt: skip
    del layout, device, pin_memory, memory_format
    kind = self.dtype if dtype == UNKNOWN else dtype
    return op.Expand(constant(fill_value, kind), op.Shape(self))


def _full(
    size: INT64, fill_value: float, dtype: int = UNKNOWN, layout: str = "", device: str = "",
    pin_memory: bool = False,
) -> Any:  # fmt: skip
    del layout, device, pin_memory
    return op.Expand(constant(fill_value, dtype), size)


def _masked_fill(self: Any, mask: Any, value: float) -> Any:
    return op.Where(mask, constant(value, self.dtype), self)


def _below_zero(x: Any, below: Any) -> Any:
    return op.Where(op.Less(x, constant(0.0, x.dtype)), below, x)


def _leaky_relu(self: Any, negative_slope: float = 0.01) -> Any:
    if self.dtype != ir.DataType.DOUBLE:  # an attribute of ONNX is a float32
        return op.LeakyRelu(self, alpha=negative_slope)
    return _below_zero(self, op.Mul(self, constant(negative_slope, self.dtype)))


def _elu(self: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    if self.dtype != ir.DataType.DOUBLE and scale == input_scale == 1:
        return op.Elu(self, alpha=alpha)
    negative = op.Mul(
        op.Elu(op.Mul(self, constant(input_scale, self.dtype))), constant(alpha * scale, self.dtype)
    )
    positive = self if scale == 1 else op.Mul(self, constant(scale, self.dtype))
    return op.Where(op.Less(self, constant(0.0, self.dtype)), negative, positive)


def _selu(self: Any) -> Any:
    if self.dtype != ir.DataType.DOUBLE:
        return op.Selu(self)
    return _elu(self, 1.6732632423543772, 1.0507009873554805)


def _celu(self: Any, alpha: float = 1.0) -> Any:
    if self.dtype != ir.DataType.DOUBLE:
        return op.Celu(self, alpha=alpha)
    factor = constant(alpha, self.dtype)
    return _below_zero(self, op.Mul(op.Elu(op.Div(self, factor)), factor))


# The custom_translation_table of torch.onnx.export.
EXACT: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.scalar_tensor.default: _scalar_tensor,
    torch.ops.aten.full.default: _full,
    torch.ops.aten.full_like.default: _full_like,
    torch.ops.aten.masked_fill.Scalar: _masked_fill,
    torch.ops.aten.leaky_relu.default: _leaky_relu,
    torch.ops.aten.elu.default: _elu,
    torch.ops.aten.selu.default: _selu,
    torch.ops.aten.celu.default: _celu,
}


# Positional factors that become attributes of ONNX; rounding eps matters only if it underflows.
_POSITIONAL, _ADDED, _LARGEST_ERROR = ("beta", "eps"), ("eps",), 1e-6


def _is_lost(name: str, number: float) -> bool:
    """Tell whether a number changes its value, or its size if it is only added, in float32."""
    rounded = torch.tensor(number).item()
    if name in _ADDED:
        return abs(rounded - number) > _LARGEST_ERROR * abs(number)
    return rounded != number


def require_exact(nodes: Iterable[torch.fx.Node]) -> None:
    """Raise ModelError for a float64 operator with a factor, as alpha, that would be rounded."""
    for node in nodes:
        made = node.meta.get("val")
        if not isinstance(made, torch.Tensor) or made.dtype != torch.float64:
            continue
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        placed = dict(zip(names, node.args, strict=False))
        given = {**{name: placed[name] for name in _POSITIONAL if name in placed}, **node.kwargs}
        for name, number in given.items():
            if node.target not in EXACT and isinstance(number, float) and _is_lost(name, number):
                raise ModelError(
                    f"{node.target} in float64 takes {name}={number}, which PyTorch's "
                    "exporter rounds to float32; multiply by it instead"
                )
