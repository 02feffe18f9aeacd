"""Traced runs of a session: spans of the host and of the device, on the host's clock.

Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from vklab.runtime import profile
from vklab.runtime.engine import Device
from vklab.runtime.parts import Found, Stage
from vklab.runtime.timed import DeviceClock, Sample, Timed
from vklab.trace import HOST, Recorder, Span, Trace

__all__ = ["device_spans", "trace"]

Names = tuple[str | tuple[int, str], ...]


@dataclass
class _Work:
    """A part, its number, and its work with timestamps where a device runs it."""

    number: int
    found: Found
    runner: Device | None = None
    timed: Timed | None = None


def trace(root: Stage, values: dict[str, Any], repeats: int, steps: bool) -> Trace:
    """Run once, then `repeats` times with notes of all that happens."""
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: at least one run is traced")
    values = dict(values)
    root.run(values)
    opened = root.engine.opened
    clock, recorder = DeviceClock(opened.device), Recorder()
    noted: list[tuple[_Work, int, Sample]] = []
    with contextlib.ExitStack() as stack:
        works = list(_works(root, stack, steps))
        last: Names = ()
        for run in range(repeats):
            for work in works:
                values |= work.found.part.known
                if work.timed and work.runner:
                    sample = work.timed.run(work.runner.arrays(values))
                    values |= sample.outputs
                    clock.see(sample)
                    noted.append((work, run, sample))
                    for span in _host_spans(work.runner, sample, work.number, last):
                        recorder.add(replace(span, run=run))
                    last = ((run, f"copy out {work.number}"),)
                elif work.found.runner:
                    name, nodes = f"host {work.number}", work.found.part.graph.nodes
                    node = nodes[0].name if len(nodes) == 1 else f"{len(nodes)} nodes"
                    with recorder.span(name, node=node, chunk=work.number, after=last, run=run):
                        values |= work.found.runner.run(values)
                    last = ((run, name),)
    for work, run, sample in noted:
        assert work.runner is not None, "what was timed runs on a device"
        for span in device_spans(work.runner, sample, clock, work.number,
                                 (f"submit {work.number}",)):  # fmt: skip
            recorder.add(replace(span, run=run))
    tied = "calibrated by the driver" if clock.calibrated else "from before and after each run"
    return recorder.trace({
        "device": str(opened.info),
        "clock": f"{tied}, within {clock.deviation_ns / 1e3:.1f} us",
        "steps": "alone between barriers" if steps else "as in a run",
    })  # fmt: skip


def _works(root: Stage, stack: contextlib.ExitStack, steps: bool) -> Iterator[_Work]:
    for number, found in enumerate(root.walk()):
        work = _Work(number, found)
        if isinstance(found.runner, Device):
            work.runner = found.runner
            work.timed = stack.enter_context(found.runner.program.timed(whole=not steps))
        yield work


def _host_spans(
    runner: Device, sample: Sample, number: int, last: Names
) -> Iterator[Span]:
    plan = runner.program.plan
    read, written = (sum(slot.size_bytes for slot in slots.values())
                     for slots in (plan.input_slots, plan.output_slots))  # fmt: skip
    inputs, submit = f"copy in {number}", f"submit {number}"
    moments: tuple[tuple[str, str, int, int, Names, int], ...] = (
        (inputs, "transfer", sample.begun_ns, sample.submitting_ns, last, read),
        (submit, "host", sample.submitting_ns, sample.submitted_ns, (inputs,), 0),
        (f"wait {number}", "wait", sample.submitted_ns, sample.done_ns, (submit,), 0),
        (f"copy out {number}", "transfer", sample.done_ns, sample.ended_ns,
         (f"chunk {number}",), written),
    )  # fmt: skip
    for name, kind, start, end, after, size_bytes in moments:
        yield Span(name, kind, HOST, start, end, bytes=size_bytes, chunk=number, after=after)


def device_spans(
    runner: Device, sample: Sample, clock: DeviceClock, number: int, after: Names
) -> Iterator[Span]:
    """Yield the spans of one submission on its device: the whole, and its steps if noted."""
    program = runner.program
    device = f"{program.opened.info.index}: {program.opened.info.name}"
    moments = [clock.host_ns(ticks) for ticks in sample.ticks]
    whole = Span(
        f"chunk {number}", "chunk", device, moments[0], moments[-1], queue="compute",
        chunk=number, after=after,
    )  # fmt: skip
    yield whole
    described = profile.steps(program.plan)
    if len(moments) != len(described) + 1:
        return
    before: Names = ()
    for step, (node, kernel, _, size_bytes, _) in enumerate(described):
        name = f"{number}.{step} {kernel}"
        yield replace(
            whole, name=name, kind="dispatch", start_ns=moments[step], end_ns=moments[step + 1],
            node=node, kernel=kernel, bytes=size_bytes, after=before,
        )  # fmt: skip
        before = (name,)
