"""Cases of MIL operators: inputs and a NumPy reference in float64.

`given` are values of a run, `constants` are held by the program; all floats are exact in float16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_random = np.random.default_rng(3)
Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """One use of an operator: values that a run gives, constants of the program, the result."""

    kind: str
    given: dict[str, Any]
    constants: dict[str, Any]
    expected: Callable[..., Any]
    dtype: str = ""  # of the result; "" for that of the first given value
    inferred: bool = True  # coremltools infers the value
    terms: int = 1  # of a sum in the result
    name: str = field(default="", compare=False)


def normal(*shape: int) -> Array:
    """Return random numbers that float16 holds exactly."""
    return _random.standard_normal(shape).astype(np.float16).astype(np.float32)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf)
X = np.concatenate(
    [normal(2, 3, 5), np.full((2, 3, 1), 0.5), np.zeros((2, 3, 1))], 2, dtype=np.float32
)
POSITIVE = np.abs(normal(2, 7)) + np.float32(0.25)
UNARY: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "relu": (lambda x: np.maximum(x, 0), {}), "tanh": (np.tanh, {}), "sigmoid": (_sigmoid, {}),
    "exp": (np.exp, {}), "abs": (np.abs, {}), "sign": (np.sign, {}), "floor": (np.floor, {}),
    "ceil": (np.ceil, {}), "round": (np.round, {}), "erf": (_erf, {}), "sin": (np.sin, {}),
    "cos": (np.cos, {}), "softplus": (lambda x: np.log1p(np.exp(x)), {}),
    "softsign": (lambda x: x / (1 + np.abs(x)), {}), "square": (lambda x: x * x, {}),
    "identity": (lambda x: x, {}), "relu6": (lambda x: np.clip(x, 0, 6), {}),
    "silu": (lambda x: x * _sigmoid(x), {}),
    "clip": (lambda x: np.clip(x, -0.5, 0.75), {"alpha": -0.5, "beta": 0.75}),
    "leaky_relu": (lambda x: np.where(x < 0, 0.125 * x, x), {"alpha": 0.125}),
    "elu": (lambda x: np.where(x < 0, 0.5 * np.expm1(x), x), {"alpha": 0.5}),
    "sigmoid_hard": (lambda x: np.clip(0.25 * x + 0.5, 0, 1), {"alpha": 0.25, "beta": 0.5}),
    "thresholded_relu": (lambda x: np.where(x >= 0.5, x, 0), {"alpha": 0.5}),
    "gelu": (lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))), {"mode": "EXACT"}),
}  # fmt: skip
BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "real_div": np.divide,
}  # fmt: skip
COMPARE: dict[str, Callable[..., Any]] = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_mean": np.mean, "reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min,
    "reduce_prod": np.prod, "reduce_l1_norm": lambda x, **k: np.sum(np.abs(x), **k),
    "reduce_l2_norm": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "reduce_sum_square": lambda x, **k: np.sum(x * x, **k),
    "reduce_log_sum_exp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}  # fmt: skip


def conv2d(x: Array, weight: Array, bias: Array | None, stride: int, pad: int,
           groups: int = 1) -> Array:  # fmt: skip
    """Convolve images, one output pixel at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    count, inner, height, width = weight.shape
    rows, columns = (
        (size - k) // stride + 1 for size, k in zip(x.shape[2:], (height, width), strict=True)
    )
    result = np.zeros((len(x), count, rows, columns))
    for i in range(rows):
        for j in range(columns):
            window = x[:, :, i * stride : i * stride + height, j * stride : j * stride + width]
            for c in range(count):
                first = c // (count // groups) * inner
                result[:, c, i, j] = (window[:, first : first + inner] * weight[c]).sum((1, 2, 3))
    return result if bias is None else result + bias[:, None, None]


def pool2d(x: Array, size: int, stride: int, pad: int, fill: float,
           how: Callable[..., Any]) -> Array:  # fmt: skip
    """Reduce windows of images; NaN stands for what does not count."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    steps = [range(0, n - size + 1, stride) for n in x.shape[2:]]
    return np.stack(
        [
            np.stack([how(x[:, :, i : i + size, j : j + size], axis=(2, 3)) for j in steps[1]], -1)
            for i in steps[0]
        ],
        -2,
    )


def layer_norm(x: Array, gamma: Array | None, beta: Array | None, axes: tuple[int, ...],
               epsilon: float) -> Array:  # fmt: skip
    """Normalise over axes, then scale and shift."""
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def softmax(x: Array, axis: int = -1) -> Array:
    """Compute exp(x) divided by its sum over an axis."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """Compute softmax(Q K' / sqrt(E) + mask) V."""
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return softmax(scores) @ v


IMAGE, KERNEL, SHIFT = normal(1, 4, 7, 7), normal(6, 4, 3, 3), normal(6)
GROUPED = normal(8, 1, 3, 3)
ROWS, MATRIX, OFFSETS = normal(2, 5, 13), normal(7, 13), normal(7)
GAMMA, BETA = normal(13), normal(13)
Q, K, V = (normal(2, 3, 5, 8) for _ in range(3))
MASK = np.tril(np.ones((5, 5), bool))
CHANNELS = (normal(4), np.float32([1.5, 0.75, 0.5, 2]), normal(4), normal(4))


def _grouped_pool(x: Array) -> Array:
    return pool2d(x, 3, 2, 1, np.nan, np.nanmean)


def _norm4(x: Array) -> Array:
    mean, variance, gamma, beta = (each.astype(np.float64)[:, None, None] for each in CHANNELS)
    return (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta


def _instance(x: Array) -> Array:
    return layer_norm(x, CHANNELS[2][:, None, None], CHANNELS[3][:, None, None], (2, 3), 1e-3)


CASES: list[Case] = [
    *(Case(kind, {"x": X}, constants, function, inferred=kind not in ("silu",))
      for kind, (function, constants) in UNARY.items()),
    *(Case(kind, {"x": X, "y": POSITIVE[0] + 0 * X[:1]}, {}, f) for kind, f in BINARY.items()),
    *(Case(kind, {"x": X, "y": X[:1] + 0}, {}, f, "bool") for kind, f in COMPARE.items()),
    *(Case(kind, {"x": X > 0, "y": X[:, :1] > 0.5}, {}, f, "bool") for kind, f in LOGIC.items()),
    *(Case(kind, {"x": X}, {"axes": [1, -1], "keep_dims": False},
           lambda x, f=f: f(x, axis=(1, 2)), terms=21) for kind, f in REDUCTIONS.items()),
    Case("floor_div", {"x": np.arange(-9, 12, dtype=np.int32), "y": np.int32([-4, 3, 5] * 7)}, {},
         np.floor_divide),
    Case("floor_div", {"x": X, "y": POSITIVE[0] + 0 * X[:1]}, {}, np.floor_divide),
    Case("mod", {"x": np.arange(-9, 12, dtype=np.int32), "y": np.int32([-4, 3, 5] * 7)}, {},
         np.mod),
    Case("mod", {"x": X, "y": POSITIVE[0] + 0 * X[:1]}, {}, np.mod),
    Case("logical_not", {"x": X > 0}, {}, np.logical_not, "bool"),
    Case("pow", {"x": POSITIVE, "y": np.full((1,), 1.5, np.float32)}, {}, np.power),
    Case("sqrt", {"x": POSITIVE}, {}, np.sqrt),
    Case("log", {"x": POSITIVE}, {"epsilon": 1e-6}, lambda x: np.log(x + 1e-6)),
    Case("rsqrt", {"x": POSITIVE}, {"epsilon": 1e-6}, lambda x: 1 / np.sqrt(x + 1e-6)),
    Case("inverse", {"x": POSITIVE}, {"epsilon": 1e-4}, lambda x: 1 / (x + 1e-4)),
    Case("gelu", {"x": X}, {"mode": "TANH_APPROXIMATION"}, lambda x: x / 2 * (1 + np.tanh(
        math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    Case("gelu", {"x": X}, {"mode": "SIGMOID_APPROXIMATION"}, lambda x: x * _sigmoid(1.702 * x)),
    Case("cast", {"x": X * 3}, {"dtype": "int32"}, np.trunc, "int32"),
    Case("cast", {"x": np.arange(6, dtype=np.int32)}, {"dtype": "fp16"}, lambda x: x, "float16"),
    Case("select", {"cond": X > 0, "a": X, "b": X * 2}, {}, np.where, "float"),
    Case("softmax", {"x": X}, {"axis": 1}, lambda x: softmax(x, 1), terms=3),
    Case("reduce_mean", {"x": X}, {"axes": [0], "keep_dims": True},
         lambda x: x.mean(0, keepdims=True), terms=2),
    Case("reshape", {"x": X}, {"shape": [3, -1]}, lambda x: x.reshape(3, -1)),
    Case("transpose", {"x": X}, {"perm": [2, 0, -2]}, lambda x: x.transpose(2, 0, 1)),
    Case("squeeze", {"x": X[:, :1]}, {"axes": [1]}, lambda x: x[:, 0]),
    Case("expand_dims", {"x": X}, {"axes": [0, -1]}, lambda x: x[None, ..., None]),
    Case("concat", {"values": [X, X * 2]}, {"axis": 1, "interleave": False},
         lambda *x: np.concatenate(x, 1)),
    Case("stack", {"values": [X, X * 2]}, {"axis": 1}, lambda *x: np.stack(x, 1)),
    Case("tile", {"x": X}, {"reps": [1, 2, 3]}, lambda x: np.tile(x, (1, 2, 3))),
    Case("split", {"x": X}, {"axis": 2, "split_sizes": [3, 4]},
         lambda x: (x[..., :3], x[..., 3:])),
    Case("split", {"x": X}, {"axis": 1, "num_splits": 3}, lambda x: tuple(np.split(x, 3, 1))),
    Case("gather", {"x": X, "indices": np.asarray([[4, 0], [1, 1]], np.int32)}, {"axis": 2},
         lambda x, i: x[:, :, i.astype(int)]),
    Case("slice_by_index", {"x": X}, {"begin": [0, 2, -1], "end": [0, 0, 1], "stride": [1, -1, -2],
         "begin_mask": [True, False, False], "end_mask": [True, True, False]},
         lambda x: x[:, 2::-1, -1:1:-2]),
    Case("slice_by_index", {"x": X}, {"begin": [1, 0, -1], "end": [2, 2, 0],
         "squeeze_mask": [False, False, True]}, lambda x: x[1:2, 0:2, -1]),
    Case("slice_by_size", {"x": X}, {"begin": [0, 1, 2], "size": [-1, 2, 3]},
         lambda x: x[:, 1:3, 2:5]),
    Case("flatten2d", {"x": X}, {"axis": 2}, lambda x: x.reshape(6, 7)),
    Case("linear", {"x": ROWS[0]}, {"weight": MATRIX, "bias": OFFSETS},
         lambda x: x @ MATRIX.T.astype(float) + OFFSETS, terms=13),
    Case("linear", {"x": ROWS}, {"weight": MATRIX, "bias": OFFSETS},
         lambda x: x @ MATRIX.T.astype(float) + OFFSETS, terms=13),
    Case("matmul", {"x": ROWS, "y": MATRIX}, {"transpose_x": False, "transpose_y": True},
         lambda x, y: x @ y.T, terms=13),
    Case("matmul", {"x": Q, "y": K}, {"transpose_x": True, "transpose_y": False},
         lambda x, y: np.swapaxes(x, -1, -2) @ y, terms=5),
    Case("layer_norm", {"x": ROWS}, {"axes": [-1], "gamma": GAMMA, "beta": BETA, "epsilon": 1e-3},
         lambda x: layer_norm(x, GAMMA, BETA, (2,), 1e-3), terms=13),
    Case("layer_norm", {"x": ROWS}, {"axes": [1, 2], "epsilon": 1e-3},
         lambda x: layer_norm(x, None, None, (1, 2), 1e-3), terms=65),
    Case("batch_norm", {"x": IMAGE}, {**dict(zip(("mean", "variance", "gamma", "beta"), CHANNELS,
         strict=True)), "epsilon": 1e-3}, _norm4, inferred=False),
    Case("instance_norm", {"x": IMAGE}, {"gamma": CHANNELS[2], "beta": CHANNELS[3],
         "epsilon": 1e-3}, _instance, inferred=False, terms=49),
    Case("conv", {"x": IMAGE}, {"weight": KERNEL, "bias": SHIFT, "strides": [2, 2],
         "pad_type": "custom", "pad": [1, 1, 1, 1], "dilations": [1, 1], "groups": 1},
         lambda x: conv2d(x, KERNEL, SHIFT, 2, 1), inferred=False, terms=36),
    Case("conv", {"x": IMAGE}, {"weight": GROUPED, "strides": [1, 1], "pad_type": "same",
         "dilations": [1, 1], "groups": 4}, lambda x: conv2d(x, GROUPED, None, 1, 1, 4),
         inferred=False, terms=9),
    Case("max_pool", {"x": IMAGE}, {"kernel_sizes": [3, 3], "strides": [2, 2],
         "pad_type": "custom", "pad": [1, 1, 1, 1]},
         lambda x: pool2d(x, 3, 2, 1, -np.inf, np.max), inferred=False),
    Case("avg_pool", {"x": IMAGE}, {"kernel_sizes": [3, 3], "strides": [2, 2],
         "pad_type": "custom", "pad": [1, 1, 1, 1], "exclude_padding_from_average": True},
         _grouped_pool, inferred=False, terms=9),
    Case("avg_pool", {"x": IMAGE}, {"kernel_sizes": [2, 2], "strides": [2, 2],
         "pad_type": "valid", "exclude_padding_from_average": False},
         lambda x: pool2d(x, 2, 2, 0, 0, np.mean), inferred=False, terms=4),
    Case("scaled_dot_product_attention", {"query": Q, "key": K, "value": V}, {}, attention,
         inferred=False, terms=8),
    Case("scaled_dot_product_attention", {"query": Q, "key": K, "value": V, "attn_mask": MASK}, {},
         attention, inferred=False, terms=8),
    Case("range_1d", {"end": np.int32(12)}, {"start": np.int32(2), "step": np.int32(3)},
         lambda end: np.arange(2, end, 3)),
    Case("shape", {"x": X}, {}, lambda x: np.asarray(x.shape), "int32"),
]  # fmt: skip


def result_dtype(case: Case, precision: str) -> str:
    """Return the dtype of a case's result in a program of a precision."""
    if case.dtype:
        return precision if case.dtype == "float" else case.dtype
    first = next(iter(case.given.values()))
    array = first[0] if isinstance(first, list) else first
    return precision if array.dtype.kind == "f" else str(array.dtype)


def flat(case: Case) -> list[tuple[str, Array]]:
    """Return the values that a run gives, lists taken apart, with the names of their inputs."""
    pairs = (
        (key, each)
        for key, given in case.given.items()
        for each in (given if isinstance(given, list) else [given])
    )
    return [(key, np.asarray(each)) for key, each in pairs]


def expected(case: Case, precision: str) -> tuple[Array, ...]:
    """Return the reference's results in float64 (or the dtype of a result that is not float)."""
    rounded = [
        each.astype(precision).astype(np.float64) if each.dtype.kind == "f" else each
        for _, each in flat(case)
    ]
    result = case.expected(*rounded)
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else (np.asarray(result),)


def constant(value: Any, precision: str) -> Any:
    """Return a constant in the dtype that a program of a precision holds."""
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(precision)
    return array.astype(np.int32) if array.dtype.kind == "i" else array
