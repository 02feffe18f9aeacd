"""Quantized models for tests: one product between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Drawn", "product"]

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


class Drawn:
    """A model under construction, with random constants.

    Args:
        seed: of all random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, array: Any) -> str:
        """Add a constant and return its name."""
        self.constants[name] = np.asarray(array)
        return name

    def codes(self, dtype: str, shape: Sequence[int]) -> np.ndarray:
        """Return random codes."""
        info = np.iinfo(dtype)
        return self.random.integers(info.min, info.max + 1, shape).astype(dtype)

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its output."""
        made = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [made], made, **attributes))
        return made

    def scaling(
        self, op_type: str, x: str, scale: Any, zero: np.ndarray, axis: int | None = None
    ) -> str:
        """Add a QuantizeLinear or DequantizeLinear.

        Args:
            op_type: the operator.
            x: its input.
            scale: one scale, or one for each index of the axis.
            zero: zero points, whose dtype is that of the codes.
            axis: the axis of several scales.
        """
        name = f"{op_type}{len(self.nodes)}"
        given = (
            self.constant(f"{name}_scale", np.asarray(scale, np.float32)),
            self.constant(f"{name}_zero", zero),
        )
        return self.node(op_type, x, *given, **({} if axis is None else {"axis": axis}))

    def model(self, inputs: dict[str, np.ndarray], made: str, kind: str) -> onnx.ModelProto:
        """Return the model with its only output."""
        given = [
            helper.make_tensor_value_info(name, KINDS[str(a.dtype)], a.shape)
            for name, a in inputs.items()
        ]
        output = helper.make_tensor_value_info(made, KINDS[kind], None)
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "quantized", given, [output], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def product(
    op_type: str, x_shape: Sequence[int], w_shape: Sequence[int], *, seed: int = 0,
    x: str = "uint8", w: str = "int8", y: str = "uint8", per_filter: bool = True,
    zeros: bool = True, between: str = "", bias: bool = True, **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:  # fmt: skip
    """Return a model of one product between scalings, and its input.

    Args:
        op_type: Conv, Gemm or MatMul.
        x_shape: shape of the codes that are fed.
        w_shape: shape of the weights.
        seed: of all random numbers.
        x: dtype of the codes; `w` of the weights', `y` of the result's, float32 for none.
        w: dtype of the codes of the weights.
        y: dtype of the result.
        per_filter: whether each filter has its own scale.
        zeros: whether weights have zero points other than 0.
        between: an activation before the result is quantized.
        bias: whether there is a bias.
        attributes: of the product.
    """
    made = Drawn(seed)
    random = made.random
    axis = 0 if op_type == "Conv" or attributes.get("transB") else len(w_shape) - 1
    filters = w_shape[axis]
    count = filters if per_filter else 1
    shape = (count,) if per_filter else ()
    fed = {"x": made.codes(x, x_shape)}
    real = made.scaling("DequantizeLinear", "x", 0.05, made.codes(x, ()))
    scales = random.uniform(0.005, 0.02, shape)
    middle = 128 if w == "uint8" else 0
    zero = made.codes(w, shape) if zeros else np.full(shape, middle, w)
    codes = made.constant("codes", made.codes(w, w_shape))
    weights = made.scaling("DequantizeLinear", codes, scales, zero, axis if per_filter else None)
    inputs = [real, weights]
    if bias and op_type != "MatMul":
        inputs.append(made.constant("bias", random.normal(size=filters).astype(np.float32)))
    result = made.node(op_type, *inputs, **attributes)
    result = made.node(between, result) if between else result
    if y != "float32":
        terms = int(np.prod(w_shape)) // filters
        step = 0.05 * 0.0125 * 104 * 74 * terms**0.5 / 40
        result = made.scaling("QuantizeLinear", result, step, made.codes(y, ()))
    return made.model(fed, result, y), fed
