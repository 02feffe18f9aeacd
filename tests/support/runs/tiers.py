"""Sizes of tests by tier: whole with --all, smaller by default."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis.strategies import characters

# Every character but halves of pairs. By a codec, as text() has them, Hypothesis takes seconds.
CHARACTERS = characters(exclude_categories=["Cs"])
LONG_CASES = "LONG_CASES"  # set by tests/conftest.py for a run with the tests marked slow
FEWEST = 20


def is_long() -> bool:
    """Tell whether this run includes the tests marked slow."""
    return bool(os.environ.get(LONG_CASES))


def seeds(first: Any, *more: Any) -> list[Any]:
    """Return parameters such as the seeds of cases: all with --all, the first by default."""
    return [first, *(pytest.param(one, marks=pytest.mark.slow) for one in more)]


def sample(default: Any, whole: Any) -> list[Any]:
    """Return one parameter, such as a stride: of --all, which includes the default one, or that."""
    return [whole if is_long() else default]


def examples(count: int) -> int:
    """Return the number of examples of a property: all with --all, a quarter by default."""
    return count if is_long() else max(min(count, FEWEST), count // 4)
