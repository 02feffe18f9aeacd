"""What a steady run of the digits costs in Python: calls, depth and classes, counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import steady_run

import vklab

PACKAGE = str(Path(vklab.__file__).parent)
MOST_CALLS, MOST_FRAMES, MOST_CLASSES, MOST_LINES = 25, 6, 6, 40
CONCEPTS = {"Session", "PlanCache", "Executor", "Program", "IOBinding", "Submission"}


@pytest.fixture
def calls(device_index):
    return steady_run.steady_calls(device_index)


def test_a_steady_run_is_short(calls):
    told = "\n".join(f"{'  ' * depth}{name} ({Path(file).name})" for depth, file, name, _ in calls)
    assert all(file.startswith(PACKAGE) for _, file, _, _ in calls), told
    assert len(calls) <= MOST_CALLS, told
    assert max(depth for depth, *_ in calls) <= MOST_FRAMES, told
    classes = steady_run.classes(calls)
    assert len(classes) <= MOST_CLASSES and classes == CONCEPTS, told
    assert max(size for *_, size in calls) <= MOST_LINES, told
