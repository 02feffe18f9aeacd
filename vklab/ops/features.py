"""Express operators of ai.onnx.ml on columns of features in other operators.

Scaling, normalization, linear models, lookups; the compiler pass fuses the element-wise steps.
Visited by lab 09.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.body import Body, Expansion
from vklab.ops.class_scores import (
    COLUMN,
    ML,
    MULTICLASS,
    TARGETS,
    TRANSFORMS,
    Scoring,
    labelled,
    scored,
)
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.ops.inputs import require
from vklab.ops.once import flat_array, once
from vklab.ops.registry import Result, operator
from vklab.types import TensorInfo

TYPES = frozenset({"float32", "float64", "int32", "int64"})
FLOAT = ELEMENT_TYPES["float32"]
_matrix = once(lambda values, *shape: np.asarray(values, np.float32).reshape(shape))


def _columns(X: TensorInfo) -> int:
    """Return the number of features of rows, or of one row; ModelError for other shapes."""
    require(TYPES, X)
    if X.rank not in (1, 2):
        raise UnsupportedOperatorError(f"X of shape {X.shape}; kernels take a matrix or a vector")
    return X.dims[-1]


def _floats(body: Body, X: TensorInfo) -> TensorInfo | str:
    return X if X.dtype == "float32" else body("Cast", X, to=FLOAT)


@operator("Scaler", domain=ML)
def scaler(
    X: TensorInfo, *, scale: Sequence[float] = (), offset: Sequence[float] = ()
) -> Expansion:
    """Compute (x - offset) * scale for each feature. Source: ONNX Scaler-1."""
    columns = _columns(X)
    if len(scale) != len(offset) or len(scale) not in (1, columns):
        raise ModelError(
            f"{len(scale)} scales and {len(offset)} offsets for {columns} features; "
            "give one of both, or one for each feature"
        )
    body = Body()
    dtype = "float64" if X.dtype == "float64" else "float32"
    given = X if dtype == "float64" else _floats(body, X)
    factors, shifts = (flat_array(flat_array(v, "float32"), dtype) for v in (scale, offset))
    scaled = body("Mul", body("Sub", given, shifts), factors)
    return body.result(body("Cast", scaled, to=FLOAT) if dtype == "float64" else scaled)


@operator("Normalizer", domain=ML)
def normalizer(X: TensorInfo, *, norm: str = "MAX") -> Expansion:
    """Divide each row by its largest element or its norm, if not 0. Source: ONNX Normalizer-1."""
    _columns(X)
    if norm not in ("MAX", "L1", "L2"):
        raise ModelError(f"unknown norm={norm!r}; choose 'MAX', 'L1' or 'L2'")
    body, axis = Body(), np.asarray([-1], np.int64)
    x = _floats(body, X)
    parts = x if norm == "MAX" else body("Abs", x) if norm == "L1" else body("Mul", x, x)
    size = body("ReduceMax" if norm == "MAX" else "ReduceSum", parts, axis, keepdims=1)
    if norm == "L2":  # by the squares, as ONNX Runtime does: they may overflow
        root = body("Sqrt", body("Div", parts, size))
        divided = body("Where", body("Less", x, 0.0), body("Neg", root), root)
    else:
        divided = body("Div", x, size)
    return body.result(body("Where", body("Equal", size, 0.0), x, divided))


@operator("Imputer", domain=ML)
def imputer(
    X: TensorInfo,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Expansion:
    """Replace one value, or NaN, by a value of the feature. Source: ONNX Imputer-1."""
    columns = _columns(X)
    require(frozenset({"float32", "int64"}), X)
    is_float = X.dtype == "float32"
    lists = imputed_value_floats, imputed_value_int64s
    values, other = lists if is_float else lists[::-1]
    if not values or other:
        raise ModelError(
            f"{len(values)} values to impute into {X.dtype}, {len(other)} of another "
            "type; give one, or one for each feature, of X's type"
        )
    chosen = flat_array(values, X.dtype)[: None if len(values) == columns else 1]
    body = Body()
    if is_float and math.isnan(replaced_value_float):
        hit = body("IsNaN", X)
    else:
        old = replaced_value_float if is_float else replaced_value_int64
        hit = body("Equal", X, np.asarray(old, X.dtype))
    return body.result(body("Where", hit, chosen, X))


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(X: TensorInfo, Y: TensorInfo) -> Expansion:
    """Select features by their numbers. Source: ONNX ArrayFeatureExtractor-1."""
    require(frozenset({"int64"}), Y)
    if X.rank == 0 or Y.count == 0:
        raise ModelError(f"X of shape {X.shape} has no features, or {Y.count} are selected")
    if Y.constant is not None:
        outside = [n for n in Y.constant.ravel().tolist() if not 0 <= n < X.dims[-1]]
        if outside:
            raise ModelError(f"feature {outside[0]} is not in 0 to {X.dims[-1] - 1}")
    body = Body()
    numbers = body("Reshape", Y, np.asarray([-1], np.int64))
    taken = body("Gather", X, numbers, axis=-1)
    shape = np.asarray([1, -1], np.int64)  # a vector becomes one row
    return body.result(body("Reshape", taken, shape) if X.rank == 1 else taken)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*X: TensorInfo, inputdimensions: Sequence[int] = ()) -> Expansion:
    """Join features as float32 columns, cut or padded. Source: ONNX FeatureVectorizer-1."""
    if len(X) != len(inputdimensions) or min(inputdimensions, default=-1) < 0:
        raise ModelError(
            f"{len(X)} inputs and inputdimensions={tuple(inputdimensions)}; give each "
            "input a number of columns"
        )
    body, parts = Body(), []
    for info, wanted in zip(X, inputdimensions, strict=True):
        require(TYPES, info)
        rows = info.dims[0] if info.rank > 1 else 1
        columns = info.count // rows if rows else math.prod(info.dims[1:])
        part = body(
            "Reshape", _floats(body, info), np.asarray([rows, columns], np.int64), allowzero=1
        )
        if columns > wanted:
            part = body("Slice", part, *(np.asarray([n], np.int64) for n in (0, wanted, 1)))
        elif columns < wanted:
            part = body("Pad", part, np.asarray([0, 0, 0, wanted - columns], np.int64))
        parts.append(part)
    return body.result(body("Concat", *parts, axis=1))


# ------------------------------------------------------------------------------ linear models


def _sums(
    body: Body, X: TensorInfo, coefficients: Sequence[float], intercepts: Sequence[float], rows: int
) -> str:
    """Return X times the rows of coefficients, plus intercepts."""
    columns = _columns(X)
    if len(coefficients) != rows * columns or not rows:
        raise ModelError(
            f"{len(coefficients)} coefficients for {rows} targets or classes and {columns} features"
        )
    x = _floats(body, X)
    if X.rank == 1:
        x = body("Reshape", x, np.asarray([1, columns], np.int64))
    bias = flat_array(intercepts, "float32") if len(intercepts) == rows else None
    return body("Gemm", x, _matrix(coefficients, rows, columns), bias, transB=1)


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    X: TensorInfo,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Expansion:
    """Compute a linear function of the features. Source: ONNX LinearRegressor-1."""
    body = Body()
    sums = _sums(body, X, coefficients, intercepts, targets)
    if post_transform != "NONE":
        sums = body("ClassScores", sums, domain="vklab", rule=TARGETS, transform=post_transform)
    return body.result(sums)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    X: TensorInfo,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> Expansion:
    """Return label and scores of the class with the largest sum. Source: LinearClassifier-1."""
    if classlabels_strings:
        return labelled("LinearClassifier", X, locals(), "classlabels_ints")
    classes, labels = len(intercepts), classlabels_ints
    if classes == 1 and (len(labels) != 2 or post_transform == "PROBIT"):
        raise UnsupportedOperatorError(
            f"one column of scores, {len(labels)} labels and "
            f"post_transform={post_transform}: not in kernels"
        )
    if classes > 1 and len(labels) != classes:
        raise ModelError(f"{len(labels)} labels for {classes} classes")
    body = Body()
    sums = _sums(body, X, coefficients, intercepts, classes)
    rule = COLUMN if classes == 1 else MULTICLASS
    return body.result(
        *body.many(
            "ClassScores",
            2,
            sums,
            domain="vklab",
            rule=rule,
            labels=labels,
            transform=post_transform,
        )
    )


@operator("ClassScores", domain="vklab")
def class_scores(
    X: TensorInfo, *, rule: int, transform: str = TRANSFORMS[0], labels: Sequence[int] = ()
) -> Result:
    """Turn sums of classes or targets into labels and scores. Source: own."""
    require(frozenset({"float32"}), X)
    return Result(*scored(X, Scoring(rule, transform, labels=labels)))
