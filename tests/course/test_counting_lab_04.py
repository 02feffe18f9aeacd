"""Counters judge the kernels that lab 04 lists as answers: right ones pass, wrong ones fail."""

from __future__ import annotations

import numpy as np
import pytest
from counted_kernels import look

from vklab.course import Run
from vklab.course.author.answers import answers_of
from vklab.course.author.lab import read_lab
from vklab.course.counting import shapes
from vklab.course.places import PROJECT
from vklab.errors import SetupError
from vklab.runtime import open_devices

START = -1.0


@pytest.fixture(autouse=True, scope="module")
def a_device():
    try:
        open_devices.select()
    except SetupError as error:
        pytest.skip(str(error))


def ramp(count, step=0.37):
    return ((np.arange(count) * step + 0.5) * (-1.0) ** np.arange(count)).astype(np.float32)


def by_columns(elements):
    column, row = np.divmod(elements, 37)
    return row * 56 + column


ONE, TWO = ramp(67), ramp(67, 1.9)
MATRIX, MANY = ramp(37 * 53), ramp(1003)
# Inputs, workgroups, push constants, results, elements of an invocation, and their owners.
CASES = {
    "04-4": ({"x": ONE}, (2,), {"count": 67}, np.maximum(ONE, 0) ** 2, 1, None),
    "04-5": ({"a": ONE, "b": TWO}, (2,), {"count": 67, "scale": -0.5},
             np.float32(-0.5) * ONE + TWO, 1, None),
    "04-6": ({"x": MATRIX}, (7, 5), {"rows": 37, "columns": 53},
             MATRIX.reshape(37, 53).T.reshape(-1), 1, by_columns),
    "04-7": ({"x": MANY}, (5,), {"count": 1003}, np.float32(0.5) * MANY, 4, None),
}  # fmt: skip


def judged(identifier, text):
    """Return the first complaint about a kernel, or the empty string."""
    inputs, groups, push, expected, each, owner = CASES[identifier]
    arrays = {**inputs, "y": np.full_like(expected, START)}
    if "#version" in text:
        arrays = {name.upper(): array for name, array in arrays.items()}
    seen, y = look(text, Run(arrays, groups, push))
    if seen.status != "ran":
        return seen.message
    if seen.push_formats.get("count", "I") not in "Ii":
        return "count has another type than the host pushes"
    if not np.allclose(seen.buffers[y], expected, 1e-5, 1e-5):
        return "values differ"
    return (shapes.work_shape(seen, y, elements_per_invocation=each)
            or shapes.partial_shape(seen, y, elements_per_invocation=each, owner=owner)
            or shapes.order_matters(seen))  # fmt: skip


def kernels(kind):
    answers = answers_of(read_lab(PROJECT / "labs" / "source" / "04_first_dispatch.py"))
    return [(answer[0], answer[1]) for answer in getattr(answers, kind) if answer[0] in CASES]


@pytest.mark.gpu
@pytest.mark.full
@pytest.mark.parametrize("identifier", CASES)
def test_right_answers_pass(identifier):
    texts = [text for found, text in kernels("alternative") if found == identifier]
    assert texts
    for text in texts:
        assert judged(identifier, text) == "", text


@pytest.mark.gpu
@pytest.mark.full
@pytest.mark.parametrize("identifier", CASES)
def test_wrong_answers_do_not(identifier):
    texts = [text for found, text in kernels("wrong") if found == identifier]
    assert texts
    passed = [text for text in texts if judged(identifier, text) == ""]
    assert not passed, passed
