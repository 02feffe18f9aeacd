"""Times measured in turn: whose turn it is, statistics, and the times of a parity report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from vklab.apps.compare.children.child import Live
from vklab.base.worker import Failure

WARM_UP, MOST = 2, 1000  # runs
One = TypeVar("One")


@dataclass
class Times:
    """Nanoseconds of runs of one backend.

    Attributes:
        plain: of runs with arrays on the host.
        bound: of runs whose inputs and outputs stay in the device's memory.
        note: why there are no bound ones, if they failed.
    """

    plain: list[int] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)
    note: str = ""


def alternating(items: Sequence[One], rounds: int) -> Iterator[tuple[int, One]]:
    """Yield the number of each round with each item: whose turn it is.

    A round begins with another item each time, so that none always follows the same one.
    """
    for number in range(rounds):
        first = number % len(items) if items else 0
        for item in (*items[first:], *items[:first]):
            yield number, item


def percentiles_us(nanoseconds: Sequence[int], *shares: float) -> list[float]:
    """Return percentiles of times in microseconds, one for each share in per cent."""
    made: list[float] = np.percentile(np.array(nanoseconds) / 1e3, shares).tolist()
    return made


def in_turn(
    alive: Mapping[str, Live], inputs: Mapping[str, np.ndarray], rounds: int, seconds: float
) -> tuple[dict[str, Times], dict[str, Failure]]:
    """Return the times of runs by backend, and the backends that failed.

    Args:
        alive: backends with a loaded model, by name.
        inputs: arrays by input name.
        rounds: number of turns.
        seconds: time of each turn.
    """
    times: dict[str, Times] = {name: Times() for name in alive}
    failures: dict[str, Failure] = {}
    for number, name in alternating([*alive], rounds):
        if name in failures:
            continue
        live = alive[name]
        try:
            if not number:
                live.measure(inputs, seconds, WARM_UP)
            times[name].plain += live.measure(inputs, seconds, MOST)
            if live.binds and not times[name].note:
                _bound(times[name], live, inputs, seconds)
        except Failure as failure:
            failures[name] = failure
            del times[name]
    return times, failures


def _bound(times: Times, live: Live, inputs: Mapping[str, np.ndarray], seconds: float) -> None:
    """Add a turn of bound runs, or a note where the provider refuses them.

    Args:
        times: times of the backend.
        live: the backend.
        inputs: arrays by input name.
        seconds: time of the turn.
    """
    try:
        times.bound += live.measure(inputs, seconds, MOST, bound=True)
    except Failure as failure:
        if failure.ended:
            raise
        times.bound, times.note = [], f"no bound runs: {failure.reason}"


def by_batch(
    alive: Mapping[str, Live], inputs: Mapping[str, np.ndarray], batches: Sequence[int],
    seconds: float,
) -> dict[str, tuple[dict[int, float], str]]:  # fmt: skip
    """Return for each backend the median microseconds of a run by batch size, and a note.

    Args:
        alive: backends with a loaded model, by name.
        inputs: arrays by input name.
        batches: sizes of the first dimension.
        seconds: time of each turn.
    """
    found: dict[str, tuple[dict[int, float], str]] = {name: ({}, "") for name in alive}
    for size in batches:
        for name, live in alive.items():
            medians, note = found[name]
            if note:
                continue
            fed = tiled(inputs, size)
            try:
                live.measure(fed, seconds, WARM_UP)
                times = live.measure(fed, seconds, MOST)
                medians[size] = latency_us(times)["median"]
            except Failure as failure:
                found[name] = medians, f"no batch of {size}: {failure.reason}"
    return found


def tiled(inputs: Mapping[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """Return inputs whose first dimension is `size`; elements repeat. Scalars stay."""
    return {
        name: np.resize(array, (size, *array.shape[1:])) if array.ndim else array
        for name, array in inputs.items()
    }


def latency_us(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return statistics of runs by name.

    Returns "median", "p10" and "p90" in microseconds, "runs", the number of runs, and
    "per_second", runs a second at the median.
    """
    p10, median, p90 = percentiles_us(nanoseconds, 10, 50, 90)
    return {
        "median": median,
        "p10": p10,
        "p90": p90,
        "runs": float(len(nanoseconds)),
        "per_second": 1e6 / median,
    }


def crossovers(batches: Mapping[str, Mapping[int, float]]) -> list[tuple[int, str]]:
    """Return the fastest backend from each batch size on at which it changes.

    A size that only one backend has run has no fastest.
    """
    sizes = sorted({size for each in batches.values() for size in each})
    found: list[tuple[int, str]] = []
    for size in sizes:
        rivals = {name: each[size] for name, each in batches.items() if size in each}
        if len(rivals) < 2:
            continue
        best = min(rivals, key=lambda name: rivals[name])
        if not found or found[-1][1] != best:
            found.append((size, best))
    return found
