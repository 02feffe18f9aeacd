"""Histogram of a value's numbers over many runs, and the range that each method takes from it.

A histogram grows by doubling its bins' width, so no number has to be seen twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vklab.base.draw import svg
from vklab.errors import ModelError

BINS = 2048
# Numbers of int8 on one side of zero.
LEVELS = 128
# Bins between two candidates of `entropy`, and bins on each side that tell a spike.
STRIDE, NEAR = 8, 8
# Share of the numbers that `percentile` keeps, in percent.
KEPT = 99.99
RARE = 1e-6
DRAWN, HEIGHT, WIDTH = 128, 120, 640


class Histogram:
    """Counts of numbers in equal bins from -limit to limit, with the least and largest number.

    Attributes:
        counts: the numbers in each bin.
        limit: the end of the last bin; 0 before a number other than 0 was added.
        low: the least number.
        high: the largest number.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.limit = 0.0
        self.low, self.high = np.inf, -np.inf

    def add(self, array: np.ndarray) -> None:
        """Count the numbers of an array; ModelError if one is not finite."""
        numbers = np.asarray(array, np.float64).ravel()
        if not numbers.size:
            return
        if not np.isfinite(numbers).all():
            raise ModelError("a number is not finite")
        self.low, self.high = min(self.low, numbers.min()), max(self.high, numbers.max())
        largest = max(abs(self.low), abs(self.high))
        if not self.limit:
            self.limit = largest
        while largest > self.limit:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[BINS // 4 : BINS - BINS // 4] = pairs
            self.limit *= 2
        if self.limit:
            self.counts += np.histogram(numbers, BINS, (-self.limit, self.limit))[0]

    @property
    def edges(self) -> np.ndarray:
        """Return the ends of the bins."""
        return np.linspace(-self.limit, self.limit, BINS + 1)

    def __str__(self) -> str:
        return f"{self.counts.sum()} numbers from {self.low:.4g} to {self.high:.4g}"

    def _repr_html_(self) -> str:
        used = np.flatnonzero(self.counts)
        first, last = (used[0], used[-1] + 1) if used.size else (0, 1)
        each = -(-(last - first) // DRAWN)
        shown = np.zeros(DRAWN * each, np.int64)
        shown[: last - first] = self.counts[first:last]
        bars = shown.reshape(DRAWN, each).sum(axis=1)
        heights = np.log1p(bars) / max(np.log1p(bars.max(initial=0)), 1e-9) * HEIGHT
        step = WIDTH / DRAWN
        parts = [
            f'<rect x="{number * step:.1f}" y="{HEIGHT + 10 - height:.1f}" width="{step - 1:.1f}" '
            f'height="{height:.1f}" fill="#3b6ea5"/>'
            for number, height in enumerate(heights)
            if height
        ]
        title, unit = f"{self}, on a logarithmic scale", 2 * self.limit / BINS
        ends = [
            (0, f"{first * unit - self.limit:.3g}", "start"),
            (WIDTH / 2, title, "middle"),
            (WIDTH, f"{(first + DRAWN * each) * unit - self.limit:.3g}", "end"),
        ]
        parts += [
            svg.text(x, HEIGHT + 26, label, f'text-anchor="{anchor}"') for x, label, anchor in ends
        ]
        return svg.svg(title, WIDTH, HEIGHT + 34, parts)


def min_max(histogram: Histogram) -> tuple[float, float]:
    """Return the least and the largest number."""
    return float(histogram.low), float(histogram.high)


def percentile(histogram: Histogram, kept: float = KEPT) -> tuple[float, float]:
    """Return the range that leaves out the same share of numbers at both ends.

    Source: Wu et al. 2020, "Integer Quantization for Deep Learning Inference", section 3.3
    """
    share = (100 - kept) / 200
    total = np.cumsum(histogram.counts) / max(histogram.counts.sum(), 1)
    edges = histogram.edges
    first, last = (int(np.searchsorted(total, end)) for end in (share, 1 - share))
    return (
        max(float(edges[first]), float(histogram.low)),
        min(float(edges[min(last + 1, BINS)]), float(histogram.high)),
    )


def entropy(histogram: Histogram) -> tuple[float, float]:
    """Return the range whose 8-bit codes keep most of the distribution of sizes.

    Each candidate cuts off the largest sizes. The best has the least Kullback-Leibler divergence
    between the distribution that it keeps and the same distribution in 128 levels.

    A spike is one number that comes back often: the zeros of a Relu, the limit of a Clip, what a
    channel makes of an empty background. Any scale has a code near it, but a level that spreads it
    over its neighbours diverges, and the more so the wider the range. TensorRT takes the spike at
    zero out for that reason; here all spikes are.

    Source: Migacz 2017, "8-bit Inference with TensorRT"
    """
    half = BINS // 2
    sizes = (histogram.counts[half:] + histogram.counts[:half][::-1]).astype(np.float64)
    used = int(np.flatnonzero(sizes)[-1]) + 1 if sizes.any() else half
    smooth = _without_spikes(sizes)
    best, cut = np.inf, used
    for end in (*range(LEVELS, used, STRIDE), used):
        given = smooth[:end].copy()
        given[-1] += sizes[end:].sum()
        divergence = _divergence(given, _in_levels(smooth[:end]))
        if divergence < best:
            best, cut = divergence, end
    limit = histogram.limit * cut / half
    return max(float(histogram.low), -limit), min(float(histogram.high), limit)


def _without_spikes(counts: np.ndarray) -> np.ndarray:
    """Return counts of which none is above the median of its neighbourhood."""
    around = np.pad(counts, NEAR, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(around, 2 * NEAR + 1)
    return np.minimum(counts, np.median(windows, axis=-1))


def _in_levels(counts: np.ndarray) -> np.ndarray:
    """Return counts spread evenly over the bins of each of 128 levels that hold any number."""
    level = np.arange(len(counts)) * LEVELS // len(counts)
    total = np.bincount(level, counts, LEVELS)
    filled = np.bincount(level, counts > 0, LEVELS)
    spread: np.ndarray = np.where(counts > 0, (total / np.maximum(filled, 1))[level], 0)
    return spread


def _divergence(one: np.ndarray, other: np.ndarray) -> float:
    """Return the Kullback-Leibler divergence of two histograms; no share counts as less than RARE.

    Args:
        one: counts, whose last bin has the numbers that were cut off.
        other: counts in the same bins.
    """
    if not one.sum() or not other.sum():
        return float(np.inf)
    p, q = one / one.sum(), np.maximum(other / other.sum(), RARE)
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


METHODS: dict[str, Callable[[Histogram], tuple[float, float]]] = {
    "min-max": min_max, "percentile": percentile, "entropy": entropy,
}  # fmt: skip
