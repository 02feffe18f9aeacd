"""NonMaxSuppression against ONNX Runtime: many boxes, equal scores, limits, thresholds."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.small_models import one_node
from vklab import settings
from vklab.ops import suppression


def case(images=2, classes=3, size=37, seed=0, levels=0):
    """Return random boxes and scores; with few levels many scores are equal."""
    rng = np.random.default_rng([seed, images, classes, size])
    corners = rng.uniform(0, 8, (images, size, 2, 2))
    boxes = np.stack([corners[..., 0, :], corners[..., 0, :] + corners[..., 1, :] / 2], 2)
    scores = rng.uniform(-1, 1, (images, classes, size))
    scores = np.round(scores * levels) / levels if levels else scores
    return boxes.reshape(images, size, 4).astype(np.float32), scores.astype(np.float32)


def check(device, arrays, most=5, iou=None, score=None, **attributes):
    limits = [
        None if most is None else np.array([most]),
        *(v if v is None else np.array([v], np.float32) for v in (iou, score)),
    ]
    while limits and limits[-1] is None:
        limits.pop()
    proto, fed = one_node("NonMaxSuppression", [*arrays, *limits], outputs=1, **attributes)
    proto.graph.output[0].ClearField("type")
    with settings.settings(FALLBACK=False), vklab.load(proto, device) as session:
        found = session.run(fed)["y0"]
        np.testing.assert_array_equal(found, session.reference(fed)["y0"])
    return found


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize(("most", "iou", "score"), [
    (5, None, None), (5, 0.3, None), (1000, 0.5, 0.1), (3, None, 0.2), (7, 0.9, -0.5), (4, 0.5, 9),
    (1, 0, 0), (0, 0.5, 0), (-1, 0.5, 0), (None, None, None),
])  # fmt: skip
def test_thresholds_and_limits(device, most, iou, score, center):
    check(device, case(), most, iou, score, center_point_box=center)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 256), (2, 5, 257), (1, 2, 1031), (3, 300, 2)])
def test_sizes(device, shape):
    check(device, case(*shape), 50, 0.4, 0.3)


def test_equal_scores_go_by_number(device):
    found = check(device, case(1, 2, 600, levels=4), 40, 0.6, 0.2)
    assert len(found) == 80


@pytest.mark.parametrize("shape", [(2, 0, 5), (0, 2, 5), (2, 2, 0)])
def test_nothing_to_choose_from(device, shape):
    assert check(device, case(*shape), 5, 0.5, 0.0).shape == (0, 3)


def test_corners_in_any_order_and_flat_boxes(device):
    boxes, scores = case(1, 1, 64)
    boxes[:, ::2] = boxes[:, ::2, [2, 3, 0, 1]]
    boxes[:, ::3, [1]] = boxes[:, ::3, [3]]
    boxes[:, 10:20] = boxes[:, 9:10]
    check(device, (boxes, scores), 64, 0.2)


def test_choices_in_several_dispatches(device, monkeypatch):
    arrays = case(2, 2, 700)
    whole = check(device, arrays, 500, 0.5, -0.5)
    monkeypatch.setattr(suppression, "STEPS", 300)
    np.testing.assert_array_equal(check(device, arrays, 500, 0.5, -0.5), whole)


def test_older_opset(device):
    check(device, case(), 4, 0.5, opset=10)
