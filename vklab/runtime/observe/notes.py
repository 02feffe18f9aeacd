"""Notes of a traced run: spans of the host, and samples of devices until their clocks agree.

Visited by lab 12.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vklab.base.trace import HOST, Recorder, Span, Trace
from vklab.runtime.observe import profile
from vklab.runtime.observe.timestamps import DeviceClock, Sample
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program

Names = tuple[str | tuple[int, str], ...]
# The number of the current run or frame; its worker threads inherit the context.
RUN: contextvars.ContextVar[int] = contextvars.ContextVar("vklab_run", default=0)


class Notes:
    """Spans and samples of one trace, shared by all its recorders."""

    def __init__(self, steps: bool) -> None:
        self.steps = steps
        self._home = threading.current_thread()
        self._recorder = Recorder()
        self._samples: list[tuple[int, str, Program, Sample, Names]] = []

    def add(self, name: str, kind: str, start_ns: int, **facts: Any) -> None:
        """Add a span of the host that ends now.

        Args:
            name: the span's name.
            kind: its kind, such as "transfer".
            start_ns: its beginning on the host's clock.
            facts: more fields of the span.
        """
        thread = threading.current_thread()
        queue = "" if thread is self._home else thread.name.removeprefix("vklab ")
        self._recorder.add(
            Span(name, kind, HOST, start_ns, Recorder.now(), run=RUN.get(), queue=queue, **facts)
        )

    def see(self, label: str, program: Program, sample: Sample, behind: Names) -> None:
        """Store a sample of a device; `trace` converts it, once all samples calibrate the clock.

        Args:
            label: the number of the chunk.
            program: its program.
            sample: the timestamps of one submission.
            behind: names of the spans that end before it begins.
        """
        self._samples.append((RUN.get(), label, program, sample, behind))

    def trace(self, is_queue: bool = False) -> Trace:
        """Return the trace of all spans.

        Args:
            is_queue: True if each submission of a device also waits for the one before it.
        """
        clocks: dict[str, tuple[OpenDevice, DeviceClock]] = {}
        for _, _, program, sample, _ in self._samples:
            opened = program.opened
            if (name := opened.info.label) not in clocks:
                clocks[name] = opened, DeviceClock(opened.device)
            clocks[name][1].see(sample)
        latest: dict[str, Names] = {}

        def start(noted: tuple[int, str, Program, Sample, Names]) -> int:
            return clocks[noted[2].opened.info.label][1].host_ns(noted[3].ticks[0])

        for run, label, program, sample, behind in sorted(self._samples, key=start):
            name = program.opened.info.label
            clock, behind = clocks[name][1], behind + latest.get(name, ())
            latest[name] = ((run, f"chunk {label}"),) if is_queue else ()
            for span in _device_spans(label, program, sample, clock, behind):
                self._recorder.add(replace(span, run=run))
        words = {
            f"device {opened.info.index}": f"{str(opened.info).partition(' ')[2]}; its clock: "
            + ("calibrated by the driver" if clock.calibrated else "from before and after a run")
            + f", within {clock.deviation_ns / 1e3:.1f} us"
            for opened, clock in clocks.values()
        }
        how = "each alone between barriers" if self.steps else "recorded as in a run"
        return self._recorder.trace({**words, "dispatches": how})


def _device_spans(
    label: str, program: Program, sample: Sample, clock: DeviceClock, behind: Names
) -> Iterator[Span]:
    """Yield the span of one submission on its device, and the spans of its steps if timed."""
    moments = [clock.host_ns(ticks) for ticks in sample.ticks]
    whole = Span(
        f"chunk {label}",
        "chunk",
        program.opened.info.label,
        moments[0],
        moments[-1],
        queue="compute",
        chunk=label,
        after=(f"submit {label}", *behind),
    )
    yield whole
    described = profile.steps(program.chunk)
    if len(moments) != len(described) + 1:
        return
    before: Names = ()
    for step, (node, kernel, _, size_bytes, _) in enumerate(described):
        name = f"{label}.{step} {kernel}"
        yield replace(
            whole,
            name=name,
            kind="dispatch",
            start_ns=moments[step],
            end_ns=moments[step + 1],
            node=node,
            kernel=kernel,
            bytes=size_bytes,
            after=before,
        )
        before = (name,)
