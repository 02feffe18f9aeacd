"""observe_kernel: run a student's kernel as it is, and with counters in its SPIR-V.

A child without a device compiles the text, this process inserts the counters, and one more child
holds the device and makes every dispatch: plain, counted, with mirrored invocations, with reversed
workgroups, and with a part of the workgroups only.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

import numpy as np

from vklab.errors import ShaderError
from vklab.shader import reflection
from vklab.shader.reflection import Reflection
from vklab_course.children import kernel_child, run_kernel
from vklab_course.children.child import BARE, run_child
from vklab_course.children.run_kernel import Dispatched, Job, Run
from vklab_course.counting.counts import Counts, read_counts
from vklab_course.counting.instrument import COUNTERS, Instrumented, instrument
from vklab_course.counting.layout import (
    ENDLESS_TURNS,
    HEADER,
    READ,
    WRITE,
    Layout,
    Order,
    too_large,
)

__all__ = ["ARRIVALS", "PINNED", "DISPATCHES", "Observed", "Counted", "observe_kernel",
           "outside"]  # fmt: skip

DISPATCHES = ("plain", "counted", "mirrored", "reversed", "partial")
# One more dispatch, in which no invocation waits at a barrier: each comes as far as it would go.
ARRIVALS = "arrivals"
LOG_ROOM = 65_536  # accesses
# Threads and vector width of Mesa's llvmpipe, so that marks do not depend on the machine.
PINNED: Mapping[str, str] = MappingProxyType(
    {"LP_NUM_THREADS": "2", "LP_NATIVE_VECTOR_WIDTH": "128"}
)
COMPILE_S = 60.0
# Python reads some 40,000 instructions a second; a kernel of a lab has a few thousand bytes.
MAX_SPIRV_BYTES = 2**20
STOP = (COUNTERS, HEADER.index("endless"))
VERBS = {READ: "read", WRITE: "written"}


@dataclass(frozen=True)
class Counted:
    """Result of one more dispatch of a run, with counters.

    Attributes:
        buffers: every buffer's content afterwards.
        counts: what the kernel did; only the dispatch `counted` has reads, sectors and a log.
        base: the first workgroup along each axis.
        groups: number of workgroups along each axis.
    """

    buffers: Mapping[str, np.ndarray]
    counts: Counts
    base: tuple[int, ...]
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Observed(Dispatched):
    """Result of one run of a kernel, and what its invocations did.

    Attributes:
        status: as for `run_kernel`, or refused: the counters cannot follow this kernel.
        run: the run.
        dispatches: every dispatch with counters, by name; one that says nothing new is left out.
    """

    run: Run = field(default_factory=lambda: Run({}))
    dispatches: Mapping[str, Counted] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """Return the counts of the whole dispatch in plain order."""
        return self.dispatches["counted"].counts


@dataclass(frozen=True)
class _Plan:
    """One dispatch with counters that is to be made."""

    way: str
    layout: Layout
    order: Order
    groups: tuple[int, ...]

    @property
    def module(self) -> str:
        """Return the file of the kernel with the counters of this dispatch."""
        return f"{self.way if self.way in ('counted', ARRIVALS) else 'ordered'}.spv"


def observe_kernel(
    text: str,
    runs: Run | Sequence[Run],
    *,
    language: str = "",
    seconds: float = 10,
    device: int | str | None = None,
    dispatches: Sequence[str] = DISPATCHES,
    variables: Mapping[str, str] | None = None,
    spirv: bytes = b"",
) -> list[Observed]:
    """Compile a kernel, insert counters, and make every dispatch in one child process.

    Args:
        text: GLSL or Slang.
        runs: one Run, or several, with buffers of the same names and dtypes.
        language: glsl or slang; default: GLSL if the text has a #version line.
        seconds: time limit of each dispatch.
        device: as in `vklab.load`.
        dispatches: which dispatches to make; `plain` is the kernel as it was compiled, and
            `arrivals` counts barriers without executing them.
        variables: environment variables of the child with the device, such as `PINNED`.
        spirv: what the text compiles to, where the caller has it.
    """
    wanted = [runs] if isinstance(runs, Run) else list(runs)
    failed = run_kernel.unsolved(text)
    if failed is None and not spirv:
        spirv, failed = _compile(text, language)
    if failed is None:
        try:
            return _observe(spirv, text, wanted, dispatches, (seconds, device, variables))
        except ShaderError as error:
            failed = Dispatched("mismatch", message=str(error))
        except _Refused as error:
            failed = Dispatched("refused", message=str(error))
    return [_observed(failed, run) for run in wanted]


class _Refused(Exception):
    """Refusal of a kernel that the counters cannot follow, or that needs too many of them."""


def _observed(
    done: Dispatched, run: Run, dispatches: Mapping[str, Counted] = MappingProxyType({})
) -> Observed:
    facts = {each.name: getattr(done, each.name) for each in fields(Dispatched)}
    return Observed(**facts, run=run, dispatches=dispatches)


def _compile(text: str, language: str) -> tuple[bytes, Dispatched | None]:
    """Return the SPIR-V of a text, compiled in a child without a device, or the failure.

    SPIR-V of more than `MAX_SPIRV_BYTES` is refused before anything reads it.
    """
    with tempfile.TemporaryDirectory(prefix="vklab-") as name:
        folder = run_kernel.kernel_folder(name)
        kernel = f"kernel{run_kernel.ending(text, language)}"
        (folder / kernel).write_text(text, encoding="utf-8")
        ended = run_child(
            "vklab_course.children.compile_child",
            [str(folder), kernel],
            folder,
            COMPILE_S,
            {BARE: "1"},
        )
        compiled, failure = folder / "compiled.spv", folder / "failed.json"
        if compiled.is_file():
            size = compiled.stat().st_size
            if size > MAX_SPIRV_BYTES:
                said = (
                    f"the compiled kernel has {size:,} bytes of SPIR-V, the limit is "
                    f"{MAX_SPIRV_BYTES:,}; do macros or unrolled loops repeat its code?"
                )
                return b"", Dispatched("refused", message=said)
            return compiled.read_bytes(), None
        if failure.is_file():
            facts = json.loads(failure.read_text("utf-8"))
            return b"", Dispatched(facts["status"], message=facts["message"])
    last = ended.output.strip().splitlines()[-1:] or [ended.how]
    return b"", Dispatched("compile_error", message=f"the compiler ended: {last[0][:300]}")


def _observe(
    spirv: bytes,
    text: str,
    runs: Sequence[Run],
    dispatches: Sequence[str],
    limits: tuple[float, int | str | None, Mapping[str, str] | None],
) -> list[Observed]:
    interface, first = reflection.reflect(spirv), runs[0]
    unused = tuple(kernel_child.dropped(text, interface, first.buffers, first.push))
    kept = {name: array for name, array in first.buffers.items() if name not in unused}
    kernel_child.require_buffers(interface, kept)
    try:
        units = {name: array.itemsize for name, array in kept.items()}
        counted, ordered = (instrument(spirv, units, is_full) for is_full in (True, False))
    except ShaderError as error:
        raise _Refused(str(error)) from error
    modules = {"plain.spv": spirv, "counted.spv": counted.spirv, "ordered.spv": ordered.spirv}
    if ARRIVALS in dispatches:
        modules[f"{ARRIVALS}.spv"] = instrument(spirv, units, False, waits=False).spirv
    jobs: list[Job] = []
    plans: list[list[_Plan]] = []
    # The counted dispatch comes first: it ends in spite of endless loops, and harms nothing.
    for run in runs:
        plans.append(_plans(run, interface, counted, kept, dispatches))
        made = [Job(plan.module, _with_counters(run, plan), unused, STOP) for plan in plans[-1]]
        plain = [Job("plain.spv", run, unused)] if "plain" in dispatches else []
        jobs += [*made[:1], *plain, *made[1:]]
    done = iter(run_kernel.run_jobs(modules, jobs, *limits))
    observed: list[Observed] = []
    for run, each in zip(runs, plans, strict=True):
        first_way = [next(done) for _ in each[:1]]
        plain_way = next(done) if "plain" in dispatches else None
        rest = [next(done) for _ in each[1:]]
        result = _read(run, plain_way, each, [*first_way, *rest], counted)
        if observed and observed[-1].status != "ran":  # the child has ended there
            result = replace(observed[-1], run=run, dispatches={})
        observed.append(result)
    return observed


def _plans(
    run: Run,
    interface: Reflection,
    counted: Instrumented,
    kept: Mapping[str, np.ndarray],
    dispatches: Sequence[str],
) -> list[_Plan]:
    """Return the dispatches with counters; those whose order is the plain one are left out."""
    constants = {
        known.id: run.constants[name]
        for name, known in interface.constants.items()
        if name in run.constants
    }
    x, y, z = (*run_kernel.whole_numbers(run.workgroups), 1, 1, 1)[:3]
    grid = (x, y, z)
    sizes = {name: run.buffers[name].nbytes for name in kept}
    units = {name: run.buffers[name].itemsize for name in kept}
    layout = Layout(grid, interface.workgroup.shape(constants), sizes, units, 0, counted.cells)
    if reason := too_large(replace(layout, room=LOG_ROOM)):
        raise _Refused(reason)
    axis = int(np.argmax(grid))
    base = tuple(n // 2 if i == axis else 0 for i, n in enumerate(grid))
    part = tuple(n - base[i] for i, n in enumerate(grid))
    is_single = layout.invocations == layout.groups or counted.uses_subgroups
    plans = {
        "counted": _Plan("counted", replace(layout, room=LOG_ROOM), Order(), grid),
        "mirrored": None if is_single else _Plan("mirrored", layout, Order(mirrored=True), grid),
        "reversed": _Plan("reversed", layout, Order(reversed=True), grid),
        "partial": _Plan("partial", layout, Order(base), part),
        ARRIVALS: _Plan(ARRIVALS, layout, Order(), grid),
    }
    if layout.groups < 2:
        plans["reversed"] = plans["partial"] = None
    return [plan for way, plan in plans.items() if plan is not None and way in dispatches]


def _with_counters(run: Run, plan: _Plan) -> Run:
    buffers = {**run.buffers, COUNTERS: plan.layout.words(plan.order)}
    return Run(buffers, plan.groups, run.push, run.constants)


def _read(
    run: Run,
    plain: Dispatched | None,
    plans: Sequence[_Plan],
    done: Sequence[Dispatched],
    counted: Instrumented,
) -> Observed:
    """Return one run's result: that of the plain dispatch, unless a later one did not run."""
    dispatches = {}
    for plan, each in zip(plans, done, strict=True):
        if each.status == "ran":
            buffers = {name: array for name, array in each.buffers.items() if name != COUNTERS}
            counts = read_counts(plan.layout, each.buffers[COUNTERS], counted.shared)
            dispatches[plan.way] = Counted(buffers, counts, plan.order.base, plan.groups)
    every = [*([plain] if plain else []), *done]
    failed = next((each for each in every if each.status != "ran"), None)
    if said := _endless(dispatches):
        failed = Dispatched("timeout", message=said)
    elif failed and (said := outside(dispatches, run)):
        failed = replace(failed, message=said)
    result = failed or plain or replace(done[0], out_of_bounds={})
    if COUNTERS in result.buffers:
        result = replace(result, buffers=dispatches[plans[0].way].buffers)
    return _observed(result, run, dispatches)


def outside(dispatches: Mapping[str, Counted], run: Run) -> str:
    """Name the first element outside of a buffer or shared array that was read or written.

    Args:
        dispatches: the dispatches with counters.
        run: the run.
    """
    found = (touch for way in dispatches.values() for touch in way.counts.outside_first)
    touch = next(found, None)
    if touch is None:
        return ""
    array, verb = run.buffers.get(touch.buffer), VERBS[touch.kind]
    if array is None:
        return (
            f"an element outside of the shared array {touch.buffer} was {verb} by invocation "
            f"{touch.invocation}; is the index right?"
        )
    if 0 <= touch.element < array.size:
        return (
            f"at element {touch.element} of {touch.buffer}, an index into an array within an "
            "element is outside of that array"
        )
    return (
        f"element {touch.element} of {touch.buffer} was {verb}, which has {array.size} "
        "elements; is there a guard, and is the index right?"
    )


def _endless(dispatches: Mapping[str, Counted]) -> str:
    for way in dispatches.values():
        turns = way.counts.by_invocation["turns"]
        if turns.size and turns.max() >= ENDLESS_TURNS:
            worst = int(turns.argmax())
            return (
                f"a loop of this kernel does not end: invocation {worst} went round "
                f"{turns[worst]} times and was stopped; does every loop stop?"
            )
    return ""
