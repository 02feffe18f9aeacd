"""What a steady run of the digits costs in Python: calls, depth and classes, counted."""

from __future__ import annotations

from pathlib import Path

import pytest

import vklab
from support.rules import steady_run
from vklab.runtime import open_devices
from vklab.runtime.polled import commands

PACKAGE = str(Path(vklab.__file__).parent)
MOST_CALLS, MOST_FRAMES, MOST_LINES = 25, 6, 40
CONCEPTS = {"Session", "PlanCache", "Executor", "Program", "IOBinding", "Submission"}


WITH_EVENTS = CONCEPTS - {"Submission"} | {"EventSubmission", "EventFence"}


@pytest.fixture
def calls(device_index):
    return steady_run.steady_calls(device_index)


def test_a_steady_run_is_short(calls, device_index):
    has_events = commands.class_for(open_devices.open_device(device_index))
    concepts = WITH_EVENTS if has_events else CONCEPTS
    told = "\n".join(f"{'  ' * depth}{name} ({Path(file).name})" for depth, file, name, _ in calls)
    assert all(file.startswith(PACKAGE) for _, file, _, _ in calls), told
    assert len(calls) <= MOST_CALLS, told
    assert max(depth for depth, *_ in calls) <= MOST_FRAMES, told
    classes = steady_run.classes(calls)
    assert classes == concepts, told
    assert max(size for *_, size in calls) <= MOST_LINES, told
