"""Dispatch lookups of numbers: each element is replaced by the value of an equal key.

Keys are sorted when the plan is made, and searched by halves. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.class_scores import ML
from vklab.ops.dtypes import NUMBERS, raw_defines, table
from vklab.ops.inputs import require
from vklab.ops.once import flat_array, once
from vklab.ops.per_element import per_element
from vklab.ops.registry import Result, operator, output
from vklab.ops.select import key_defines
from vklab.types import TensorInfo


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
    return _looked_up(X, locals(), True)


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
    return _looked_up(X, locals(), False)  # before opset 4, no key equals NaN


def _looked_up(X: TensorInfo, given: Mapping[str, Any], finds_nan: bool) -> Result:
    keys, values = (_one(name, given) for name in ("keys", "values"))
    default = given["default_float" if values.dtype.kind == "f" else "default_int64"]
    if given.get("default_tensor") is not None:
        default = given["default_tensor"]
        if default.size != 1 or default.dtype != values.dtype:
            raise ModelError(
                f"default_tensor has {default.size} values of {default.dtype}; it "
                f"must be one {values.dtype}"
            )
    require(NUMBERS - {"float16", "bfloat16"}, X)
    if len(keys) != len(values):
        raise ModelError(f"{len(keys)} keys and {len(values)} values; give each key a value")
    if str(keys.dtype) != X.dtype:
        raise ModelError(f"keys are {keys.dtype}, X is {X.dtype}; they must be equal")
    unique, chosen = _sorted(keys, values, default, finds_nan)
    return per_element(
        "label_encoder",
        output(str(values.dtype), X.dims),
        (("x", X), ("k", table(unique, X.dtype)), ("v", table(chosen, str(values.dtype)))),
        (("keys", len(unique)),),
        (*key_defines("X", X.dtype), *raw_defines("Y", str(chosen.dtype))[:1]),
        iterations=len(unique).bit_length() + 1,
    )


@once
def _sorted(
    keys: np.ndarray, values: np.ndarray, default: Any, finds_nan: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return each key once, in order, and the value of the first of each; then the default."""
    default, kept = np.ravel(default).astype(values.dtype), finds_nan | (keys == keys)
    keys, values = keys[kept], values[kept]
    unique, first = np.unique(np.where(keys == 0, 0, keys).astype(keys.dtype), return_index=True)
    if not len(unique):  # a buffer has at least one element
        unique, values, first = np.zeros(1, keys.dtype), default, np.zeros(1, int)
    return unique, np.append(values[first], default)


def _one(name: str, given: Mapping[str, Any]) -> np.ndarray:
    """Return the one list or tensor of keys or values that is given, as an array."""
    tensor, lists = given.get(f"{name}_tensor"), (("int64s", "int64"), ("floats", "float32"))
    made = [flat_array(given[f"{name}_{kind}"], d) for kind, d in lists if given[f"{name}_{kind}"]]
    made += [flat_array(tensor, str(tensor.dtype))] if tensor is not None else []
    if given[f"{name}_strings"] or any(array.dtype.kind in "OSU" for array in made):
        raise UnsupportedOperatorError(f"{name} are text, not numbers")
    if len(made) != 1:
        raise ModelError(f"{len(made)} lists of {name} are given; give one")
    return made[0]
