"""Expand one step of an optimizer into arithmetic. ONNX: Adagrad, Adam, Momentum.

Inputs are a rate, a step count, and lists of tensors: all X, all gradients, all states.
In ONNX's conformance suite: seven node cases, test_adagrad to test_nesterov_momentum.
Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import ModelError
from vklab.ops.body import Body, Expansion
from vklab.ops.inputs import require
from vklab.ops.registry import operator
from vklab.types import TensorInfo

__all__ = ["adagrad", "adam", "momentum"]

TRAINING = "ai.onnx.preview.training"
FLOAT32 = frozenset({"float32"})
Groups = list[tuple[TensorInfo, ...]]


def _groups(inputs: tuple[TensorInfo, ...], lists: int) -> Groups:
    """Return one tuple for each X: X, its gradient, its states."""
    count, rest = divmod(len(inputs), lists)
    if rest or not count:
        raise ModelError(f"{len(inputs)} tensors do not divide into {lists} lists of equal length")
    require(FLOAT32, *inputs)
    return [inputs[i::count] for i in range(count)]


def _regularized(body: Body, X: TensorInfo, G: TensorInfo, norm_coefficient: float) -> str:
    return body("Add", body("Mul", X, norm_coefficient), G)


def _result(body: Body, updated: Sequence[tuple[str, ...]]) -> Expansion:
    """Return all new X, then all new states."""
    return body.result(*(name for names in zip(*updated, strict=True) for name in names))


@operator("Adagrad", domain=TRAINING)
def adagrad(
    R: TensorInfo,
    T: TensorInfo,
    *inputs: TensorInfo,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Expansion:
    """Step by gradients over the root of their summed squares.

    Source: ONNX Adagrad-1; Duchi, Hazan and Singer, 2011.
    """
    require(FLOAT32, R)
    body, updated = Body(), []
    steps = body("Mul", body("CastLike", T, R), decay_factor)
    rate = body("Div", R, body("Add", steps, 1.0))
    for X, G, H in _groups(inputs, 3):
        gradient = _regularized(body, X, G, norm_coefficient)
        squares = body("Add", H, body("Mul", gradient, gradient))
        size = body("Add", body("Sqrt", squares), epsilon)
        step = body("Div", body("Mul", rate, gradient), size)
        updated.append((body("Sub", X, step), squares))
    return _result(body, updated)


@operator("Adam", domain=TRAINING)
def adam(
    R: TensorInfo,
    T: TensorInfo,
    *inputs: TensorInfo,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Expansion:
    """Step by the mean gradient over the root of its mean square.

    Source: ONNX Adam-1; Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014.
    """
    require(FLOAT32, R)
    body, updated = Body(), []
    time = body("CastLike", T, R)
    # Correct the bias of running means that start at zero.
    bias = body("Sqrt", body("Sub", 1.0, body("Pow", beta, time)))
    larger = body("Div", body("Mul", R, bias), body("Sub", 1.0, body("Pow", alpha, time)))
    rate = body("Where", body("Greater", time, 0.0), larger, R)
    for X, G, V, H in _groups(inputs, 4):
        gradient = _regularized(body, X, G, norm_coefficient)
        mean = body("Add", body("Mul", V, alpha), body("Mul", gradient, 1 - alpha))
        square = body("Mul", body("Mul", gradient, gradient), 1 - beta)
        squares = body("Add", body("Mul", H, beta), square)
        size = body("Add", body("Sqrt", squares), epsilon)
        moved = body("Sub", X, body("Mul", rate, body("Div", mean, size)))
        updated.append((body("Mul", moved, 1 - norm_coefficient_post), mean, squares))
    return _result(body, updated)


@operator("Momentum", domain=TRAINING)
def momentum(
    R: TensorInfo,
    T: TensorInfo,
    *inputs: TensorInfo,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Expansion:
    """Step by a decaying sum of gradients, optionally Nesterov's. Source: ONNX Momentum-1."""
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"unknown mode={mode!r}; choose 'standard' or 'nesterov'")
    require(FLOAT32, R)
    body, updated = Body(), []
    factor = body("Where", body("Greater", body("CastLike", T, R), 0.0), beta, 1.0)
    for X, G, V in _groups(inputs, 3):
        gradient = _regularized(body, X, G, norm_coefficient)
        velocity = body("Add", body("Mul", V, alpha), body("Mul", factor, gradient))
        step = velocity
        if mode == "nesterov":
            step = body("Add", gradient, body("Mul", velocity, alpha))
        updated.append((body("Sub", X, body("Mul", R, step)), velocity))
    return _result(body, updated)
