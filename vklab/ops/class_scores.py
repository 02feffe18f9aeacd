"""Dispatch the last step of classifiers and regressors of ai.onnx.ml: labels and scores.

ONNX leaves open how two classes share one column of scores; kernels do what ONNX Runtime does.
Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.ops.body import Body, Expansion
from vklab.ops.dtypes import table
from vklab.ops.once import flat_array, once
from vklab.ops.registry import WORKGROUP, grid, output
from vklab.types import Dispatch, TensorInfo

ML = "ai.onnx.ml"
_numbers = once(lambda texts: tuple(range(len(texts))))
ML_OPSET = 3  # of the nodes of an Expansion; all of these operators have it
# How sums become scores and a label: RULE of shaders/ops/class_scores.slang.
TARGETS, MULTICLASS, BINARY, COLUMN = range(4)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Scoring:
    """Describe how sums become scores.

    Attributes:
        rule: TARGETS, MULTICLASS, BINARY or COLUMN.
        transform: one of TRANSFORMS.
        combine: a Slang expression that combines the sums a and b of two blocks.
        base: numbers that are added to the sums; one each, or as ONNX Runtime reads fewer.
        divisor: number by which sums are divided.
        labels: the label of each class; empty if there is no such output.
        column: 0 if both of two classes have weights; else whether they are all positive: 1, 2.
    """

    rule: int
    transform: str
    combine: str = "a+b"
    base: Sequence[float] | np.ndarray = ()
    divisor: int = 1
    labels: Sequence[int] = ()
    column: int = 0


def scored(sums: TensorInfo, scoring: Scoring) -> tuple[tuple[TensorInfo, ...], Any]:
    """Return the outputs, labels and scores or scores alone, and their dispatches.

    Args:
        sums: float32 [blocks, rows, targets] or [rows, targets]; a bit pattern marks none.
        scoring: what is to be done.
    """
    if scoring.transform not in TRANSFORMS:
        raise ModelError(
            f"unknown post_transform={scoring.transform!r}; choose one of {', '.join(TRANSFORMS)}"
        )
    rows, targets = sums.dims[-2:]
    blocks = sums.dims[0] if sums.rank == 3 else 1
    base, labels = flat_array(scoring.base, "float32"), flat_array(scoring.labels, "int64")
    width = 2 if scoring.rule == COLUMN else targets
    if len(base) > targets:
        raise ModelError(f"{len(base)} base_values for {targets} targets or classes")
    scores, label = output("float32", (rows, width)), output("int64", (rows,))
    outputs = (label, scores) if scoring.labels else (scores,)
    if not rows:
        return outputs, ()
    reads = [("s_buffer", sums)]
    reads += [("base_buffer", table(base, "float32"))] if len(base) else []
    reads += [("label_buffer", table(labels, "int64"))] if len(labels) else []
    writes = [("y_buffer", scores)]
    writes += [("l_buffer", label)] if scoring.labels else []
    dispatch = Dispatch(
        kernel="class_scores",
        reads=tuple(reads),
        writes=tuple(writes),
        workgroups=grid(-(-rows // WORKGROUP)),
        push=(
            ("count", rows),
            ("blocks", blocks),
            ("targets", targets),
            ("bases", len(base)),
            ("divisor", float(scoring.divisor)),
        ),
        defines=(
            ("RULE", str(scoring.rule)),
            ("COMBINE", scoring.combine),
            ("TRANSFORM", str(TRANSFORMS.index(scoring.transform))),
            ("BASE", str(int(len(base) > 0))),
            ("LABELS", str(int(bool(scoring.labels)))),
            ("ONE_COLUMN", str(scoring.column)),
        ),
        flops=sums.count,
        iterations=targets * (blocks + 2) + 4,
    )
    return outputs, (dispatch,)


def labelled(op_type: str, X: TensorInfo, given: Mapping[str, Any], integers: str) -> Expansion:
    """Return a classifier with text labels as one with numbers, whose labels the host looks up.

    Args:
        op_type: the classifier.
        X: its input.
        given: its attributes by name, and other values.
        integers: the name of the attribute with numeric labels.
    """
    texts = given["classlabels_strings"]
    attributes = {
        name: value
        for name, value in given.items()
        if name != "classlabels_strings"
        and value is not X
        and value is not None
        and (not isinstance(value, tuple) or value)
    }
    numbers = _numbers(texts)
    body = Body()
    label, scores = body.many(op_type, 2, X, domain=ML, **{**attributes, integers: numbers})
    named = body("LabelEncoder", label, domain=ML, keys_int64s=numbers, values_strings=texts)
    return replace(body.result(named, scores), opset=ML_OPSET)
