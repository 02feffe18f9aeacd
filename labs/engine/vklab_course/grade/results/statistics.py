"""Statistics of a batch for its report: what each exercise got, and where students stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.results.schema import ExerciseResult, SubmissionResult

__all__ = ["GROUPS", "ExerciseStatistics", "LabStatistics", "common_conditions",
           "statistics"]  # fmt: skip

# What the bars show -> statuses. The order is that of the bars.
GROUPS = {
    "passed": ("passed",),
    "partly passed": ("partial",),
    "not passed": ("failed", "error", "timeout", "out_of_memory", "tampered"),
    "no answer": ("missing", "not_attempted", "skipped"),
    "to be marked": ("needs_hand_marking",),
}
COMMON = 5
BINS = 10


@dataclass(frozen=True)
class ExerciseStatistics:
    """One exercise: counts by group and status, mean points, seconds, common messages."""

    id: str
    title: str
    of: float
    mean: float
    groups: dict[str, int]
    statuses: dict[str, int]
    parts: tuple[tuple[str, int, int], ...]
    messages: tuple[tuple[str, int], ...]
    median_s: float
    longest_s: float


@dataclass(frozen=True)
class LabStatistics:
    """One lab: graded, broken and interrupted submissions, points in bins, and its exercises."""

    lab: LabFacts
    count: int
    broken: tuple[SubmissionResult, ...]
    interrupted: tuple[SubmissionResult, ...]
    of: float
    mean: float
    median: float
    bins: tuple[int, ...]
    seconds: float
    exercises: tuple[ExerciseStatistics, ...]


def statistics(records: Iterable[SubmissionResult], lab: LabFacts) -> LabStatistics:
    """Return the statistics of one lab; submissions that could not be graded count apart."""
    mine = [record for record in records if record.lab == lab.name]
    graded = [record for record in mine if not record.broken]
    points = sorted(record.points for record in graded)
    bins = [0] * BINS
    for record in graded:
        share = record.points / record.of if record.of else 0.0
        bins[min(BINS - 1, int(share * BINS + 1e-9))] += 1
    return LabStatistics(
        lab,
        len(graded),
        tuple(r for r in mine if r.broken),
        tuple(r for r in graded if r.interrupted),
        lab.points,
        _mean(points),
        _median(points),
        tuple(bins),
        sum(record.seconds for record in mine),
        tuple(
            _exercise(
                e.id, e.title, e.points, [r.exercises[e.id] for r in graded if e.id in r.exercises]
            )
            for e in lab.exercises
        ),
    )


def _exercise(
    identifier: str, title: str, of: float, results: Sequence[ExerciseResult]
) -> ExerciseStatistics:
    statuses: Counter[str] = Counter(result.status for result in results)
    groups = {name: sum(statuses[s] for s in some) for name, some in GROUPS.items()}
    said: Counter[str] = Counter()
    parts: dict[str, list[int]] = {}
    for result in results:
        seen = {_common(part.message) for part in result.parts if not part.passed and part.message}
        seen |= set() if seen else {_common(text) for text in result.messages}
        said.update(seen - {""} if result.status != "passed" else ())
        for part in result.parts:
            counts = parts.setdefault(part.name, [0, 0])
            counts[0] += part.passed
            counts[1] += 1
    seconds = sorted(result.seconds for result in results)
    return ExerciseStatistics(
        identifier,
        title,
        of,
        _mean([r.points for r in results if r.status != "skipped"]),
        groups,
        dict(statuses.most_common()),
        tuple((n, a, b) for n, (a, b) in parts.items()),
        tuple(said.most_common(COMMON)),
        _median(seconds),
        seconds[-1] if seconds else 0.0,
    )


def _common(message: str) -> str:
    """Return the first line of a message with its numbers out, so that like messages meet."""
    line = next((line for line in message.splitlines() if line.strip()), "")
    return re.sub(r"-?\d+(?:[._,]\d+)*", "#", line)[:160]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _median(values: Sequence[float]) -> float:
    middle = len(values) // 2
    if not values:
        return 0.0
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def common_conditions(records: Mapping[str, SubmissionResult]) -> dict[str, list[str]]:
    """Return the different environments, seeds and sandboxes of the records, as texts."""
    kinds: dict[str, set[str]] = {"environment": set(), "seed": set(), "sandbox": set()}
    for record in records.values():
        kinds["environment"].add(", ".join(f"{k} {v}" for k, v in record.environment.items()))
        kinds["seed"].add(record.seed_fingerprint)
        if record.sandbox:
            said = ", ".join(f"{k} {v}" for k, v in record.sandbox.items())
            kinds["sandbox"].add("NONE: marks are not safe" if record.unsafe else said)
    return {name: sorted(texts) for name, texts in kinds.items()}
