"""Losses against NumPy: every reduction, weights, ignored and impossible classes, many targets."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference.ops.op_softmax_cross_entropy_loss import softmaxcrossentropy

from support.checks.run_node import close, run_all

RANDOM = np.random.default_rng(5)


def case(shape, dtype=np.float32, targets=np.int64):
    """Return scores [N,C,...], targets [N,...] and weights [C]."""
    scores = RANDOM.standard_normal(shape).astype(dtype)
    target = RANDOM.integers(0, shape[1], (shape[0], *shape[2:])).astype(targets)
    return scores, target, RANDOM.random(shape[1]).astype(dtype) + dtype(0.1)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1, -7])
def test_losses(device, reduction, weighted, ignored):
    for shape in [(3, 5), (20011, 3), (2, 5, 7), (2, 3, 5, 7), (1, 3, 1)]:
        scores, target, weight = case(shape, targets=np.int32 if len(shape) == 3 else np.int64)
        if ignored is not None:
            target.flat[::4] = ignored
        given = [scores, target, *([weight] if weighted else [])]
        more = {} if ignored is None else {"ignore_index": ignored}
        loss, log_prob = run_all(
            "SoftmaxCrossEntropyLoss", given, 2, device, 13, reduction=reduction, **more
        )
        expected, true_log = softmaxcrossentropy(
            scores, target.astype(np.int64), weight if weighted else None, reduction, ignored, True
        )
        close(log_prob, true_log)
        close(loss, expected)
        given[0] = np.asarray(true_log, np.float32)
        (loss,) = run_all(
            "NegativeLogLikelihoodLoss", given, 1, device, 13, reduction=reduction, **more
        )
        close(loss, expected)


def test_half_and_double(device_index):
    for dtype, tolerance in [(np.float16, 2e-3), (np.float64, 1e-6)]:
        scores, target, weight = case((67, 5), dtype)
        (loss,) = run_all(
            "NegativeLogLikelihoodLoss", [scores, target, weight], 1, device_index, 13
        )
        wide = weight.astype(np.float64)[target]
        close(loss, -(wide * scores[range(67), target]).sum() / wide.sum(), tolerance, tolerance)


def test_a_class_that_does_not_exist_counts_nothing(device):
    scores, target, _ = case((4, 3))
    target[1] = 99
    (loss,) = run_all(
        "NegativeLogLikelihoodLoss", [scores, target], 1, device, 13, reduction="none"
    )
    assert loss[1] == 0 and loss[0] == -scores[0, target[0]]


def test_no_targets(device):
    none = [np.zeros((0, 3), np.float32), np.zeros((0,), np.int64)]
    for reduction, expected in [("none", []), ("sum", 0), ("mean", np.nan)]:
        (loss,) = run_all("NegativeLogLikelihoodLoss", none, 1, device, 13, reduction=reduction)
        np.testing.assert_array_equal(loss, np.array(expected, np.float32))
