"""What a steady run of the digits costs in Python: calls, depth and classes, counted."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from small_models import DATA

import vklab

PACKAGE = str(Path(vklab.__file__).parent)
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
MOST_CALLS, MOST_FRAMES, MOST_CLASSES, MOST_LINES = 25, 6, 6, 40
CONCEPTS = {"Session", "PlanCache", "Executor", "Program", "IOBinding", "Submission"}


def steady_calls(device: int) -> list[tuple[int, str, str, int]]:
    """Return depth, file, qualified name and lines of each Python call of a run, in order."""
    images = np.load(DATA / "digits.npz")["images"][:1]
    calls: list[tuple[int, str, str, int]] = []
    depth = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal depth
        code = frame.f_code
        if event == "call":
            depth += 1
            if code.co_name not in COMPREHENSIONS:
                lines = [line for *_, line in code.co_lines() if line]
                size = max(lines) - code.co_firstlineno + 1
                calls.append((depth, code.co_filename, code.co_qualname, size))
        elif event == "return":
            depth -= 1

    with vklab.load(DATA / "digits_cnn.onnx", device) as session:
        for _ in range(3):
            session.run({"image": images})
        feed = {"image": images}
        sys.setprofile(note)
        session.run(feed)
        sys.setprofile(None)
    return calls


@pytest.fixture
def calls(device_index):
    return steady_calls(device_index)


def test_a_steady_run_is_short(calls):
    told = "\n".join(f"{'  ' * depth}{name} ({Path(file).name})" for depth, file, name, _ in calls)
    assert all(file.startswith(PACKAGE) for _, file, _, _ in calls), told
    assert len(calls) <= MOST_CALLS, told
    assert max(depth for depth, *_ in calls) <= MOST_FRAMES, told
    classes = {name.split(".")[0] for _, _, name, _ in calls if "." in name}
    assert len(classes) <= MOST_CLASSES and classes == CONCEPTS, told
    assert max(size for *_, size in calls) <= MOST_LINES, told
