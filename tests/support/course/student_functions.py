"""What students hand in for the fixture lab's rounding exercise: right, and never ending."""

from __future__ import annotations

import itertools


def right(count, multiple=256):
    if multiple < 1:
        raise ValueError("multiple")
    return -(-count // multiple) * multiple


def hangs(count, multiple=256):
    while True:
        pass


def hangs_and_catches(count, multiple=256):
    while True:
        try:
            list(itertools.repeat(0, 1000))
        except Exception:
            continue
