"""Notes of a traced run: spans of the host, and samples of devices until their clocks agree.

Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vklab.runtime.observe import profile
from vklab.runtime.observe.timestamps import DeviceClock, Sample
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.trace import HOST, Recorder, Span, Trace

__all__ = ["RUN", "Names", "Notes"]

Names = tuple[str | tuple[int, str], ...]
# The run, or frame, that is under way here: threads that work for it have its context.
RUN: contextvars.ContextVar[int] = contextvars.ContextVar("vklab_run", default=0)


class Notes:
    """What all that is watched shares."""

    def __init__(self, steps: bool) -> None:
        self.steps = steps
        self._home = threading.current_thread()
        self._recorder = Recorder()
        self._samples: list[tuple[int, str, Program, Sample, Names]] = []

    def add(self, name: str, kind: str, start_ns: int, **facts: Any) -> None:
        """Note something that the host did until now."""
        thread = threading.current_thread()
        queue = "" if thread is self._home else thread.name.removeprefix("vklab ")
        self._recorder.add(Span(name, kind, HOST, start_ns, Recorder.now(), run=RUN.get(),
                                queue=queue, **facts))  # fmt: skip

    def see(self, label: str, program: Program, sample: Sample, behind: Names) -> None:
        """Note what a device did, for when its clock is known as well as it will be."""
        self._samples.append((RUN.get(), label, program, sample, behind))

    def trace(self, is_queue: bool = False) -> Trace:
        """Return all spans.

        Args:
            is_queue: what a device did waited for what it did before, of whatever frame.
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
    """Yield the spans of one submission on its device: the whole, and its steps if noted."""
    moments = [clock.host_ns(ticks) for ticks in sample.ticks]
    whole = Span(
        f"chunk {label}", "chunk", program.opened.info.label, moments[0], moments[-1],
        queue="compute", chunk=label, after=(f"submit {label}", *behind),
    )  # fmt: skip
    yield whole
    described = profile.steps(program.chunk)
    if len(moments) != len(described) + 1:
        return
    before: Names = ()
    for step, (node, kernel, _, size_bytes, _) in enumerate(described):
        name = f"{label}.{step} {kernel}"
        yield replace(
            whole, name=name, kind="dispatch", start_ns=moments[step], end_ns=moments[step + 1],
            node=node, kernel=kernel, bytes=size_bytes, after=before,
        )  # fmt: skip
        before = (name,)
