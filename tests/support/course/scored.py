"""The cases of a scored exercise under several seeds: what the tests of its bound start from."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from support.runs import tiers
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import find
from vklab_course.places import PROJECT

SEEDS = ("public", "one", "another", "a third")


def drawn_cases(identifier: str, seconds: float = 30.0) -> Any:
    """Return a fixture: the exercise, its module, and the cases of one seed.

    seconds: limit on the processor time of one draw. A class waits for each draw.
    """

    @pytest.fixture(params=tiers.seeds(*SEEDS))
    def drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
        exercise = find(identifier)
        started = time.process_time()
        cases = draw(exercise, request.param)
        took = time.process_time() - started
        print(f"drawn in {took:.2f} s")
        assert took < seconds
        return exercise, sys.modules[type(exercise).__module__], cases

    return drawn
