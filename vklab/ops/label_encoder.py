"""Dispatch lookups of numbers: each element is replaced by the value of an equal key.

Keys are sorted when the plan is made, and searched by halves. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.class_scores import ML
from vklab.ops.dtypes import NUMBERS, raw_defines, table
from vklab.ops.inputs import require
from vklab.ops.per_element import per_element
from vklab.ops.registry import Result, operator, output
from vklab.ops.select import key_defines
from vklab.types import TensorInfo

Given = tuple[Sequence[int], Sequence[float], Sequence[str], np.ndarray | None]


@operator("LabelEncoder", since=4, domain=ML)
def label_encoder(
    X: TensorInfo,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: ndarray | None = None,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: ndarray | None = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: ndarray | None = None,
) -> Result:
    """Replace each number by the value of the first equal key. Source: ONNX LabelEncoder-4."""
    keys = _one("keys", (keys_int64s, keys_floats, keys_strings, keys_tensor))
    values = _one("values", (values_int64s, values_floats, values_strings, values_tensor))
    default = np.asarray([default_float if values.dtype.kind == "f" else default_int64])
    if default_tensor is not None:
        default = default_tensor.ravel()
        if default.size != 1 or default.dtype != values.dtype:
            raise ModelError(
                f"default_tensor has {default.size} values of {default.dtype}; it "
                f"must be one {values.dtype}"
            )
    return _looked_up(X, keys, values, default)


@operator("LabelEncoder", since=2, domain=ML)
def label_encoder_of_lists(
    X: TensorInfo,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
) -> Result:
    """Replace each number by the value of the first equal key. Source: ONNX LabelEncoder-2."""
    keys = _one("keys", (keys_int64s, keys_floats, keys_strings, None))
    values = _one("values", (values_int64s, values_floats, values_strings, None))
    default = np.asarray([default_float if values.dtype.kind == "f" else default_int64])
    if len(keys) == len(values):  # before opset 4, no key equals NaN
        keys, values = keys[keys == keys], values[keys == keys]
    return _looked_up(X, keys, values, default)


def _looked_up(X: TensorInfo, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> Result:
    require(NUMBERS - {"float16", "bfloat16"}, X)
    if len(keys) != len(values):
        raise ModelError(f"{len(keys)} keys and {len(values)} values; give each key a value")
    if str(keys.dtype) != X.dtype:
        raise ModelError(f"keys are {keys.dtype}, X is {X.dtype}; they must be equal")
    default = default.astype(values.dtype)
    unique, first = np.unique(np.where(keys == 0, 0, keys).astype(keys.dtype), return_index=True)
    if not len(unique):  # a buffer has at least one element
        unique, values, first = np.zeros(1, keys.dtype), default, np.zeros(1, int)
    chosen = np.append(values[first], default)
    return per_element(
        "label_encoder",
        output(str(values.dtype), X.dims),
        (("x", X), ("k", table(unique, X.dtype)), ("v", table(chosen, str(values.dtype)))),
        (("keys", len(unique)),),
        (*key_defines("X", X.dtype), *raw_defines("Y", str(chosen.dtype))[:1]),
        iterations=len(unique).bit_length() + 1,
    )


def _one(name: str, given: Given) -> np.ndarray:
    """Return the one list or tensor of an attribute that is given, as an array."""
    integers, floats, texts, tensor = given
    made = [
        np.asarray(values, dtype)
        for values, dtype in ((integers, np.int64), (floats, np.float32))
        if len(values)
    ]
    made += [tensor.ravel()] if tensor is not None else []
    if texts or (tensor is not None and tensor.dtype.kind in "OSU"):
        raise UnsupportedOperatorError(f"{name} are text, not numbers")
    if len(made) != 1:
        raise ModelError(f"{len(made)} lists of {name} are given; give one")
    return made[0]
