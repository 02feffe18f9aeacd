"""A stated model of noise, and how often an interval holds. Visited by lab 18."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import numpy as np

__all__ = ["TRUE_MEDIAN", "draw_times", "holds", "mean_interval"]

TYPICAL, SPREAD, SLOW_SHARE, SLOW = 100_000, 0.05, 0.08, (3.0, 9.0)
Interval = Callable[[list[int]], tuple[float, float] | None]


def draw_times(
    random: np.random.Generator, count: int, slow_share: float = SLOW_SHARE
) -> list[int]:
    """Return times in ns: 100 us and 5 % of half a normal number; some are 3 to 9 times as long.

    Args:
        random: draws them.
        count: how many.
        slow_share: the share of slow ones.
    """
    if count < 1 or not 0 <= slow_share <= 1:
        raise ValueError("a list of times has at least one, and a share is between 0 and 1")
    times = TYPICAL * (1 + SPREAD * np.abs(random.standard_normal(count)))
    slow = random.random(count) < slow_share
    return [round(time) for time in np.where(slow, times * random.uniform(*SLOW, count), times)]


TRUE_MEDIAN = float(np.median(draw_times(np.random.default_rng(1), 400_000)))


def mean_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return mean - 1.96 s / root n and mean + 1.96 s / root n; None for one sample."""
    if len(samples) < 2:
        return None
    half = 1.96 * stdev(samples) / math.sqrt(len(samples))
    return fmean(samples) - half, fmean(samples) + half


def holds(interval: Interval, count: int, draws: int = 600) -> int:
    """Return in how many of 100 draws an interval encloses the model's median.

    Args:
        interval: makes it from samples; None is no interval, and encloses nothing.
        count: samples a draw.
        draws: the number of draws.
    """
    random, inside = np.random.default_rng(18), 0
    for _ in range(draws):
        found = interval(draw_times(random, count))
        inside += found is not None and found[0] <= TRUE_MEDIAN <= found[1]
    return round(100 * inside / draws)
