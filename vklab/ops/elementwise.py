"""Operators that treat every element alone, broadcasting their operands. ONNX: Relu, Add, Where.

Each is one function of shaders/lib/elementwise.slang and one line here. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.registry import (
    WORKGROUP,
    Result,
    grid,
    operator,
    output,
    require_float,
    type_define,
)
from vklab.types import Dispatch, TensorInfo

__all__ = [
    "broadcast_shape",
    "broadcast_strides",
    "dense_strides",
    "elementwise",
    "merge_axes",
    "strided",
]

MAX_AXES = 5
OPERANDS = ("a", "b", "c")


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that NumPy-style broadcasting gives; ModelError if there is none."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        sizes = {dim for dim in dims if dim != 1}
        if len(sizes) > 1:
            raise ModelError(f"shapes {' and '.join(str(tuple(s)) for s in shapes)} do not "
                             "broadcast")  # fmt: skip
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return tuple(reversed(strides))


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return the strides that read a dense tensor as if it had the target shape."""
    padding = len(target) - len(shape)
    dense = dense_strides(shape)
    own = [0 if dim == 1 else stride for dim, stride in zip(shape, dense, strict=True)]
    return (0,) * padding + tuple(own)


def merge_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Join neighbouring axes that every operand walks evenly, and drop axes of one.

    A [2,3,4] tensor read densely becomes one axis of 24: fewer divisions in the kernel.
    """
    axes = [(dim, [s[i] for s in strides]) for i, dim in enumerate(shape) if dim != 1]
    merged: list[tuple[int, list[int]]] = []
    for dim, steps in axes:
        if merged and all(o == dim * s for o, s in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * dim, steps)
        else:
            merged.append((dim, steps))
    new_shape = tuple(dim for dim, _ in merged)
    return new_shape, [tuple(steps[i] for _, steps in merged) for i in range(len(strides))]


def elementwise(function: str, *inputs: TensorInfo, **attributes: float) -> Result:
    """Apply a function of shaders/lib/elementwise.slang to broadcast inputs."""
    dtype = require_float(*inputs)
    shape = broadcast_shape(*(info.dims for info in inputs))
    strides = [broadcast_strides(info.dims, shape) for info in inputs]
    names = [f"p{i}" for i in range(len(attributes))]
    call = f"onnx::{function}({', '.join([*OPERANDS[: len(inputs)], *names])})"
    result = output(dtype, shape)
    push = tuple(zip(names, attributes.values(), strict=True))
    return Result((result,), strided(call, inputs, strides, result, push))


def strided(
    expression: str,
    inputs: Sequence[TensorInfo],
    strides: Sequence[Sequence[int]],
    result: TensorInfo,
    push: tuple[tuple[str, float], ...] = (),
) -> tuple[Dispatch, ...]:
    """Return the dispatch of shaders/ops/elementwise.slang; none if there is nothing to write.

    `strides` are in elements, one per axis of the result; 0 repeats an element.
    """
    if result.count == 0:
        return ()
    shape, merged = merge_axes(result.dims, strides)
    if len(shape) > MAX_AXES:
        raise UnsupportedOperatorError(
            f"shape {result.shape} needs {len(shape)} independent axes, the kernel has {MAX_AXES}"
        )
    dense = all(steps == dense_strides(shape) for steps in merged)
    parameters: list[tuple[str, int | float | tuple[int, ...]]] = [
        ("count", result.count), ("p0", 0.0), ("p1", 0.0)
    ]  # fmt: skip
    parameters = [item for item in parameters if item[0] not in dict(push)] + list(push)
    if not dense:
        padding = MAX_AXES - len(shape)
        parameters.append(("shape", (1,) * padding + shape))
        for name, steps in zip(OPERANDS, merged, strict=False):
            parameters.append((f"{name}_stride", (0,) * padding + steps))
    defines = (("ARITY", str(len(inputs))), ("BROADCAST", "0" if dense else "1"),
               ("EXPRESSION", expression), type_define(result.dtype))  # fmt: skip
    return (
        Dispatch(
            kernel="elementwise",
            reads=tuple((f"{n}_buffer", i) for n, i in zip(OPERANDS, inputs, strict=False)),
            writes=(("y_buffer", result),),
            workgroups=grid(-(-result.count // WORKGROUP)),
            push=tuple(parameters),
            defines=defines,
            flops=result.count,
        ),
    )


@operator("Relu")
def relu(X: TensorInfo) -> Result:
    """Compute max(x, 0). Source: ONNX Relu-14."""
    return elementwise("relu", X)


@operator("LeakyRelu")
def leaky_relu(X: TensorInfo, *, alpha: float = 0.01) -> Result:
    """Compute x, or alpha * x below zero. Source: ONNX LeakyRelu-16."""
    return elementwise("leaky_relu", X, alpha=alpha)


@operator("Sigmoid")
def sigmoid(X: TensorInfo) -> Result:
    """Compute 1 / (1 + exp(-x)). Source: ONNX Sigmoid-13."""
    return elementwise("sigmoid", X)


@operator("Tanh")
def tanh(X: TensorInfo) -> Result:
    """Compute the hyperbolic tangent. Source: ONNX Tanh-13."""
    return elementwise("tanh", X)


@operator("Neg")
def neg(X: TensorInfo) -> Result:
    """Compute -x. Source: ONNX Neg-13."""
    return elementwise("neg", X)


@operator("Add", since=7)
def add(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a + b. Source: ONNX Add-14."""
    return elementwise("add", A, B)


@operator("Sub", since=7)
def sub(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a - b. Source: ONNX Sub-14."""
    return elementwise("sub", A, B)


@operator("Mul", since=7)
def mul(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a * b. Source: ONNX Mul-14."""
    return elementwise("mul", A, B)


@operator("Div", since=7)
def div(A: TensorInfo, B: TensorInfo) -> Result:
    """Compute a / b. Source: ONNX Div-14."""
    return elementwise("div", A, B)
