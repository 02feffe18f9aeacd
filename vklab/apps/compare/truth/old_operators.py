"""Operators of old opsets that onnx.reference computes by another rule than ONNX states.

Until opset 13 Softmax and its kin flatten all axes from `axis` on; onnx.reference takes the last
axis. Until opset 14 BatchNormalization with one output uses the given statistics; onnx.reference
mixes those of the batch into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

FLAT_UNTIL, STATISTICS_UNTIL = 13, 14


def operators(model: onnx.ModelProto) -> list[Any]:
    """Return the classes that `ReferenceEvaluator` needs as `new_ops` for a model."""
    version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=1)
    flat: list[Any] = [Softmax, LogSoftmax, Hardmax] if version < FLAT_UNTIL else []
    return [*flat, BatchNormalization] if version < STATISTICS_UNTIL else []


class _Flat(OpRun):
    """An operator of rows: all axes from `axis` on are one."""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
        rows = x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)
        return (self._of_rows(rows - rows.max(1, keepdims=True)).reshape(x.shape),)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the results of rows whose maximum is 0."""
        raise NotImplementedError


class Softmax(_Flat):
    """Softmax of opsets 1 to 12.

    Source: ONNX, "Softmax-11"
    """

    op_schema = onnx.defs.get_schema("Softmax", 11)  # its axis is 1 by default, not -1

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        powers = np.exp(rows)
        return powers / powers.sum(1, keepdims=True)


class LogSoftmax(_Flat):
    """LogSoftmax of opsets 1 to 12.

    Source: ONNX, "LogSoftmax-11"
    """

    op_schema = onnx.defs.get_schema("LogSoftmax", 11)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        return rows - np.log(np.exp(rows).sum(1, keepdims=True))


class Hardmax(_Flat):
    """Hardmax of opsets 1 to 12.

    Source: ONNX, "Hardmax-11"
    """

    op_schema = onnx.defs.get_schema("Hardmax", 11)

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        ones = np.zeros_like(rows)
        ones[np.arange(len(rows)), rows.argmax(1)] = 1
        return ones


class BatchNormalization(OpRun):
    """BatchNormalization of opsets 1 to 13, for inference.

    Source: ONNX, "BatchNormalization-9"
    """

    op_domain = ""
    op_schema = onnx.defs.get_schema("BatchNormalization", 9)

    def _run(self, x: np.ndarray, *rest: np.ndarray, epsilon: float = 1e-5, **unused: Any
             ) -> tuple[np.ndarray]:  # fmt: skip
        shape = (-1, *(1,) * (x.ndim - 2))
        scale, bias, mean, variance = (array.reshape(shape) for array in rest)
        return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias,)
