"""Rules and costs of a design: how many runs of each length a slope is measured with.

Visited by lab 18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["EXAMPLE", "flaw", "variance"]

# lengths, us of a run, standard deviation of a run in us, budget in us
EXAMPLE = (
    [1, 10, 100, 1000],
    [27.0, 50.0, 275.0, 2525.0],
    [2.0, 4.0, 30.0, 900.0],
    200_000.0,
)


def variance(lengths: Sequence[int], sd: Sequence[float], runs: Sequence[int]) -> float:
    """Return the variance of the slope of the weighted least-squares line.

    A length weighs as many runs as it has over the variance of one run. Infinite if fewer than two
    lengths have runs.

    Args:
        lengths: nodes of each chain.
        sd: standard deviation of one run of each length.
        runs: how many runs of each length.
    """
    if not len(lengths) == len(sd) == len(runs):
        raise ValueError("lengths, deviations and runs are not equally many")
    weights = [count / deviation**2 for count, deviation in zip(runs, sd, strict=True)]
    if sum(weight > 0 for weight in weights) < 2:
        return math.inf
    centre = math.fsum(w * n for w, n in zip(weights, lengths, strict=True)) / math.fsum(weights)
    spread = math.fsum(w * (n - centre) ** 2 for w, n in zip(weights, lengths, strict=True))
    return 1 / spread


def flaw(lengths: Sequence[int], cost: Sequence[float], budget: float, runs: Any) -> str:
    """Return what is wrong with an answer: no whole runs, too few lengths, too much time; or "".

    Args:
        lengths: nodes of each chain.
        cost: us of one run of each length.
        budget: us in all.
        runs: the answer.
    """
    if not isinstance(runs, list | tuple) or len(runs) != len(lengths):
        return f"expected a list of {len(lengths)} whole numbers, one for each length"
    for length, count in zip(lengths, runs, strict=True):
        if type(count) is not int or count < 0:
            return f"the runs of length {length} are no whole number, 0 or more"
    if sum(count > 0 for count in runs) < 2:
        return "fewer than two lengths have runs, so there is no slope"
    spent = math.fsum(count * us for count, us in zip(runs, cost, strict=True))
    if spent > budget * (1 + 1e-12):
        return f"these runs take {spent:.6g} us, the budget is {budget:.6g} us"
    return ""
