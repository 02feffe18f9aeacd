"""Measurement of the kernels that a model could use, on the device and buffers of its session.

Each class of products is timed with several tiles and numbers of parts, the candidates in turn. The
fastest are kept by `tuned`, for the sessions that are loaded afterwards. Visited by lab 08.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vklab import settings
from vklab.errors import ModelError
from vklab.plan.tuning import candidates
from vklab.plan.tuning.tiles import Choice
from vklab.runtime import kernels
from vklab.runtime.observe import trials, tuned
from vklab.runtime.observe.trials import Advance, Trials, Whole

# A choice must be this much faster to be kept; the whole model must not be slower by WORSE.
GAIN, WORSE = 1.03, 1.01
# Outputs may differ by this share of the largest element: sums are taken in another order.
MOST_DIFFERENCE = 0.02


@dataclass(frozen=True)
class TunedRow:
    """One class of products: its expected and its fastest choice.

    Attributes:
        problem: the class.
        node: the first node with a product of this class.
        count: the dispatches of the model that belong to it.
        choice: the fastest choice; an empty rule if none is clearly faster than the expected one.
        measured: the choices that were timed; the expected one is the first.
        before_ns: the median time of all dispatches of the class with the expected choice.
        after_ns: the same with the fastest choice.
    """

    problem: str
    node: str
    count: int
    choice: Choice
    measured: int
    before_ns: float
    after_ns: float


@dataclass(frozen=True)
class Tuning:
    """Result of `tune`: a row for each class, and the time of the whole model.

    Attributes:
        device: the name of the device.
        rows: a row for each class that was timed.
        kept: the number of choices written to the cache folder.
        clock: "device" for timestamps; "host" if the device has none, so that whole runs are timed.
        whole: the times of whole runs; zeros if they were not measured.
        passes: how often each candidate was timed.
        is_interrupted: True after an interrupt.
        notes: what the reader should know, such as a limit that was reached.
    """

    device: str
    rows: tuple[TunedRow, ...]
    kept: int
    clock: str
    whole: Whole = Whole()
    passes: int = 0
    is_interrupted: bool = False
    notes: tuple[str, ...] = ()


def tune(
    session: Any,
    *inputs: Any,
    limit_s: float = 60.0,
    progress: Advance = lambda done, of, what: None,
    compiling: kernels.Progress | None = None,
) -> Tuning:
    """Measure candidates for each product of a model, and keep the fastest ones.

    Other work on the device at that time falsifies the result. An interrupt (KeyboardInterrupt)
    ends the measurement; what was measured until then is kept.

    Args:
        session: a session on one device.
        inputs: the inputs as in `run`.
        limit_s: the seconds that the measurement may take; a last run may exceed them.
        progress: called as (done, of, what is done).
        compiling: called as (done, of, kernel) while kernels compile.

    Raises ModelError for a session on several devices.
    """
    if len(session.states) != 1:
        raise ModelError("a model is tuned on one device at a time; load it with device=...")
    switches = {**session.roots[0].plan.options.switches, "DISABLE_TUNED": False}
    with session.exclusive(), settings.settings(**switches):
        found = Trials(session, session.arrays(inputs), limit_s, progress, compiling)
        with found.stack:
            return _tuned(found)


def _tuned(found: Trials) -> Tuning:
    info, clock = found.info, "device" if found.has_clock else "host"
    whole, is_interrupted = Whole(), False
    tables = found.survey()
    if not tables:
        note = "nothing to tune: the model has no product or convolution with several candidates"
        return Tuning(info.name, (), 0, clock, notes=(note,))
    try:
        found.measure(tables)
        rows = _rows(found)
        best = {row.problem: row.choice for row in rows if row.choice[0]}
        whole = found.whole(best) if best else whole
    except KeyboardInterrupt:
        is_interrupted, rows = True, _rows(found)
        found.notes["interrupted: what was measured until then is kept"] = None
    if not rows and not is_interrupted:
        least = trials.LEAST_PASSES
        found.notes[f"no candidate was timed {least} times; raise --limit"] = None
    if rows and not any(row.choice[0] for row in rows):
        found.notes["no candidate was clearly faster than what the time model chooses"] = None
    reason = _refusal(whole)
    if reason:
        found.notes[reason] = None
    kept = 0 if reason else _keep(found, rows)
    return Tuning(
        info.name, tuple(rows), kept, clock, whole, found.passes, is_interrupted, tuple(found.notes)
    )


def _rows(found: Trials) -> list[TunedRow]:
    """Return the fastest choice of each class that was timed often enough, slow classes first."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, step in found.trials[0].steps() if found.trials else ():
        nodes[step.measured].append(node)
    medians: dict[str, dict[Choice, float]] = defaultdict(dict)
    for (name, choice), times in found.samples.items():
        if len(times) >= trials.LEAST_PASSES:
            medians[name][choice] = median(times)
    rows = []
    for name, each in medians.items():
        expected = each.get(candidates.EXPECTED)
        if expected is None:
            continue
        best = min(each, key=lambda choice: each[choice])
        best = best if each[best] * GAIN < expected else candidates.EXPECTED
        rows.append(
            TunedRow(
                name,
                nodes[name][0],
                len(nodes[name]),
                best,
                len(found.tried[name]),
                expected,
                each[best],
            )
        )
    return sorted(rows, key=lambda row: -row.before_ns)


def _keep(found: Trials, rows: Sequence[TunedRow]) -> int:
    """Write the choices that are faster than expected; delete what was kept of other classes."""
    tuned.clear(found.info, [row.problem for row in rows if not row.choice[0]])
    kept = 0
    for row in rows:
        used = {
            step.kernel
            for trial in found.trials
            for _, step in trial.steps()
            if step.measured == row.problem
        }
        entry = tuned.MeasuredChoice(
            row.problem, row.choice, tuple(sorted(used)), row.before_ns, row.after_ns
        )
        kept += bool(row.choice[0]) and tuned.keep(found.info, entry)
    return kept


def _refusal(whole: Whole) -> str:
    """Return why the choices are not kept; "" if they are."""
    if not whole.difference <= MOST_DIFFERENCE:  # NaN is refused too
        return f"nothing was kept: outputs differ by {whole.difference:.2g} of the largest element"
    if whole.is_slower and whole.after_ns > whole.before_ns * WORSE:
        return "nothing was kept: the whole model would be slower"
    return ""
