"""Sizes and elements that PyTorch computes from factors, as PyTorch counts them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import vklab

pytestmark = pytest.mark.full

# Products with sizes that are whole, just below a whole number in float64 or float32, or neither.
FACTORS = (
    1 / 3,
    1 / 7,
    0.1,
    0.29,
    0.6,
    0.7,
    1.02,
    1.2,
    1.5,
    2,
    2.05,
    2.5,
    3,
    3.3,
    1 / 1.5,
    49 / 50,
    0.5,
)
MODES: dict[str, dict[str, Any]] = {
    "nearest": {}, "nearest-exact": {}, "bilinear": {}, "bicubic": {}, "area": {},
    "linear": {}, "trilinear": {}, "nearest 3d": {}, "nearest 1d": {},
    "bilinear corners": {"align_corners": True}, "bicubic corners": {"align_corners": True},
    "bilinear antialias": {"antialias": True}, "bicubic antialias": {"antialias": True},
    "nearest recomputed": {"recompute_scale_factor": True},
}  # fmt: skip
SHAPES = {
    "linear": (2, 3, 100),
    "trilinear": (1, 2, 5, 10, 7),
    "nearest 3d": (1, 2, 5, 10, 7),
    "nearest 1d": (2, 3, 7),
}


class Function(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        """Call the function."""
        return self.function(x)


def resized(name: str, x: torch.Tensor, factors: Any = FACTORS) -> Callable[..., Any]:
    """Return a function that interpolates by every factor that leaves two elements."""
    known = [factor for factor in factors if min(x.shape[2:]) * factor >= 2]
    options = {"mode": name.split()[0], **MODES[name]}
    return lambda x: tuple(functional.interpolate(x, scale_factor=f, **options) for f in known)


def agree(made: Any, wanted: Any, is_exact: bool = False) -> None:
    """Compare arrays with tensors: dtype, shape and values."""
    for array, tensor in zip(made, wanted, strict=True):
        expected = tensor.numpy()
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        slack = 0 if is_exact else 1e-4 if array.dtype == np.float32 else 1e-11
        np.testing.assert_allclose(array, expected, slack, slack)


def check(device_index: int, function: Any, x: torch.Tensor, dims: Any = None, others: Any = ()):
    """Compare a function with its session, made for x, also at other inputs."""
    with vklab.from_torch(
        Function(function), x, {"x": dims} if dims else None, device=device_index
    ) as session:
        for given in (x, *others):
            wanted = function(given)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            agree(session.run(given.numpy()).values(), wanted)


@pytest.mark.parametrize("name", MODES)
def test_interpolate_takes_sizes_and_elements_of_pytorch(name, device_index):
    x = torch.randn(SHAPES.get(name, (2, 3, 30, 49)))
    function = resized(name, x)
    with vklab.from_torch(Function(function), x, device=device_index) as session:
        agree(session.run(x.numpy()).values(), function(x), "nearest" in name)


@pytest.mark.parametrize("name", ["nearest", "bicubic", "bilinear antialias"])
@pytest.mark.parametrize("is_written", [False, True])
def test_interpolate_in_a_compiled_function(name, is_written, device_index):
    """A graph that writes to its input reaches the exporter as other overloads."""
    from vklab.apps.pytorch import backend  # Dynamo, which takes seconds in each worker

    function = resized(name, torch.empty(2, 3, 15, 10), (1 / 3, 0.7, 2))

    def changing(x):
        return function(x.add_(1) if is_written else x)

    torch._dynamo.reset()
    options = {"device": device_index, "fallback": False}
    with torch.no_grad():
        compiled = torch.compile(changing, backend=backend.vklab_backend, options=options)
        x = torch.randn(2, 3, 15, 10)
        made = compiled(x.clone())
    agree([tensor.numpy() for tensor in made], changing(x.clone()), name == "nearest")


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bilinear corners", "area"])
def test_interpolate_at_open_sizes(name, device_index):
    options = {"mode": name.split()[0], **MODES[name]}
    others = [torch.randn(1, 2, 100, 10), torch.randn(1, 2, 20, 49)]

    def function(x):
        factors = (0.29, 1 / 3, 2, 1.08)  # 1.08 leaves a size of 12
        return tuple(functional.interpolate(x, scale_factor=f, **options) for f in factors)

    check(device_index, function, torch.randn(1, 2, 15, 12), {2: "height", 3: "width"}, others)


SIZES: dict[str, Callable[[torch.Tensor], Any]] = {
    "floor": lambda x: x[: math.floor(x.shape[0] * 0.29)],
    "ceil": lambda x: functional.pad(x, (0, math.ceil(x.shape[0] * 0.07))),
    "round": lambda x: x[: round(x.shape[0] * 0.25)],
    "trunc": lambda x: x[: math.trunc(max(x.shape[0] / 100 * 29, 2.0))],
    "negative": lambda x: x[: -(-x.shape[0] // 7)],
    "read by a tensor": lambda x: x * (x.shape[0] * 0.7) + x.shape[0] ** -0.5,
    "read in float64": lambda x: x.double() * (x.shape[0] * 0.7),
    "arange": lambda x: torch.arange(0, 0.3, 0.1) + x[0],
    "arange whole": lambda x: torch.arange(x.shape[0], dtype=torch.float32) + x[0],
    "arange of sizes": lambda x: torch.arange(0, 1, 1 / x.shape[0]) + x[0],
    "arange float64": lambda x: torch.arange(1, 2.1, 0.1, dtype=torch.float64) + x[0],
    "pool": lambda x: functional.adaptive_avg_pool1d(x[None, None], 7),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_computed_from_open_sizes(name, device_index):
    check(device_index, SIZES[name], torch.randn(15), {0: "n"}, [torch.randn(100)])


@pytest.mark.parametrize(("size", "shape"), [
    ((3, 5), (2, 3, 15, 10)), ((4, 7), (2, 3, 15, 10)), ((3, 5), (3, 15, 10)),
    ((20, None), (2, 3, 15, 10)),
])  # fmt: skip
def test_adaptive_pools(size, shape, device_index):
    check(device_index, lambda x: functional.adaptive_avg_pool2d(x, size), torch.randn(shape))


@pytest.mark.parametrize(("function", "x", "dims", "words"), [
    (lambda x: functional.interpolate(x, scale_factor=0.7, mode="bilinear", antialias=True,
                                      align_corners=True), torch.ones(1, 1, 9, 9), None,
     "align_corners=False"),
    (lambda x: functional.interpolate(x, scale_factor=0.7, mode="bilinear"),
     torch.ones(1, 1, 9, 9).double(), None, "recompute_scale_factor"),
    (lambda x: x[: int(x.shape[0] * 0.29)], torch.ones(15), {0: "n"}, "math.trunc"),
])  # fmt: skip
def test_what_onnx_cannot_count_is_refused(function, x, dims, words, device_index):
    with pytest.raises(vklab.ModelError, match=words):
        vklab.from_torch(Function(function), x, {"x": dims} if dims else None, device=device_index)
