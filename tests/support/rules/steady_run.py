"""The Python calls of a steady run of the digits, counted by the interpreter."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np

import vklab
from support.graphs.small_models import DATA

COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
Call = tuple[int, str, str, int]


def classes(calls: list[Call]) -> set[str]:
    """Return the names of the classes whose methods were called."""
    return {name.split(".")[0] for _, _, name, _ in calls if "." in name}


def steady_calls(device: int) -> list[Call]:
    """Return depth, file, qualified name and lines of each Python call of a run, in order."""
    images = np.load(DATA / "digits.npz")["images"][:1]
    calls: list[Call] = []
    depth = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal depth
        code = frame.f_code
        if code.co_name in COMPREHENSIONS:  # from Python 3.12 on they are no calls
            return
        if event == "call":
            depth += 1
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
