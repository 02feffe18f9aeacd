"""Plan: the chunks of a model, and the function that decides them.

partition -> placement and cut -> passes -> lowering -> fusion and tuning -> memory -> barriers.
No driver is called here. Fusion, tuning, placement and reports are optional folders, loaded if they
exist. Visited by labs 11 and 12.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vklab import settings
from vklab.errors import PlanError, SetupError, UnsupportedOperatorError
from vklab.graph.graph import Graph
from vklab.plan import (
    arenas,
    barriers,
    capability,
    limits,
    lowering,
    partition,
    split_ranges,
    storage,
)
from vklab.plan.arenas import Arenas
from vklab.plan.barriers import Access, Copy, Step
from vklab.plan.chunk import CONTROL, HOST, Chunk, Transfer
from vklab.plan.lowering import Lowered
from vklab.plan.memory import MemoryPlan, Slot
from vklab.plan.options import Facts, Options
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["Plan", "extend", "lower_chunk", "lower_rewritten", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """A model's chunks in order, up to the first shape that only a run can tell.

    `print` shows a plan in one line, a notebook as a table.

    Attributes:
        graph: the whole model.
        devices: the devices; chunks name them by index.
        options: the options of the caller.
        chunks: in an order in which they can run.
        transfers: values that a chunk passes to a chunk of another device.
        rest: the nodes that no chunk contains yet; None if the plan is complete.
        needs: values that the rest reads and that must be known before the plan can grow.
        placement: the device of each node with the reason, if there are several devices.
        paths: the transfer path of each transfer, from a session; empty in a plan that never runs.
    """

    graph: Graph
    devices: tuple[DeviceInfo, ...]
    options: Options = field(default_factory=Options)
    chunks: tuple[Chunk, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    rest: Graph | None = None
    needs: tuple[str, ...] = ()
    placement: Any = None
    paths: Mapping[Transfer, Any] = field(default_factory=dict)

    @property
    def live(self) -> tuple[str, ...]:
        """Return the values that the rest of the model reads; their shapes decide its chunks."""
        if self.rest is None:
            return ()
        return (*(info.name for info in self.rest.inputs), *self.rest.captures)

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Return all dispatches, chunk after chunk."""
        return tuple(step for chunk in self.chunks for step in chunk.dispatches)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Return the copies between host-visible and device memory."""
        return tuple(step for chunk in self.chunks for step in chunk.copies)

    @property
    def memory(self) -> MemoryPlan:
        """Return the memory of the only chunk; raise PlanError unless there is exactly one."""
        if len(self.chunks) != 1:
            raise PlanError(f"this plan has {len(self.chunks)} chunks: each has its own memory")
        return self.chunks[0].memory

    @property
    def reasons(self) -> Mapping[str, str]:
        """Return the reason for each node on the host, by node name."""
        return {node: reason for chunk in self.chunks for node, reason in chunk.reasons.items()}

    def __str__(self) -> str:
        used = sorted({chunk.device for chunk in self.chunks if chunk.is_on_device})
        names = [self.devices[number].name for number in used or (0,)]
        names += ["the host"] if not all(chunk.is_on_device for chunk in self.chunks) else []
        nodes = sum(len(chunk.graph.nodes) for chunk in self.chunks)
        counts = (f"{nodes} nodes", f"{len(self.dispatches)} dispatches",
                  f"{sum(len(chunk.barriers) for chunk in self.chunks)} barriers",
                  f"{len(self.copies)} copies", f"{len(self.transfers)} transfers")  # fmt: skip
        size = f"in {len(self.chunks)} chunks" if len(self.chunks) != 1 else str(self.memory)
        more = "" if self.rest is None else "; the rest is decided by the first run"
        return f"plan for {' and '.join(names)}: {', '.join(counts)}; {size}{more}"

    def summary(self) -> dict[str, Any]:
        """Return the counts that describe the plan, ready for JSON."""
        return dict(_report().summary(self))

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return node, kernel, workgroups and written values of each step, as text."""
        return list(_report().rows(self))

    def picture(self, title: str = "") -> str:
        """Draw the dispatches of each chunk as a graph, its memory beneath, as SVG."""
        return str(_report().picture(self, title))

    def write(self, folder: str) -> None:
        """Write the rows of the plan into a file in a folder; create the folder."""
        _report().write(self, folder)

    def _repr_html_(self) -> str:
        return str(_report().html(self))


# -------------------------------------------------------------------------------- the whole model


def make_plan(
    graph: Graph,
    inputs: Mapping[str, TensorInfo],
    devices: Sequence[DeviceInfo],
    options: Options | None = None,
    facts: Facts | None = None,
) -> Plan:
    """Plan how a model runs, up to the first size that only a run can tell.

    Args:
        graph: the imported model.
        inputs: dtype and shape of each input, with its value if that is known and decides.
        devices: the devices to plan for; chunks name them by index.
        options: default: those of `load` without arguments, with the current switches.
        facts: default: a machine without resident weights that has every kernel.

    Raises PlanError if the devices are too small, UnsupportedOperatorError with FALLBACK off.
    """
    start = Plan(graph, tuple(devices), options or Options(), rest=graph)
    return extend(start, inputs, facts or Facts())


def extend(plan: Plan, infos: Mapping[str, TensorInfo], facts: Facts) -> Plan:
    """Return a longer plan that shares the chunks of a given one.

    If a value must be known first, no chunk is added and `needs` names the value.

    Args:
        plan: an incomplete plan.
        infos: dtype and shape of every value in `live`, with the contents of those in `needs`.
        facts: as in `make_plan`.
    """
    assert plan.rest is not None, "a complete plan cannot grow"
    with settings.settings(**plan.options.switches):
        require = functools.partial(capability.require, **_checks(facts))
        after_host = bool(plan.chunks) and not plan.chunks[-1].is_on_device
        answer = partition.next_chunk(plan.rest, infos, plan.devices, facts.evaluate, require,
                                      after_host)  # fmt: skip
        if isinstance(answer, partition.Needed):
            return replace(plan, needs=(*plan.needs, *answer.names))
        chunk, rest = answer
        if chunk.place != CONTROL and chunk.reasons and not settings.get("FALLBACK"):
            reason = next(iter(chunk.reasons.values()))
            raise UnsupportedOperatorError(f"{reason} (VKLAB_FALLBACK=0 keeps off the host)")
        return _with(plan, chunk, rest, facts)


def _with(plan: Plan, chunk: Chunk, rest: Graph, facts: Facts) -> Plan:
    """Return a plan with one more chunk, or with the chunks into which placement cuts it."""
    left = rest if rest.nodes else None
    before = _dependencies(plan.chunks, chunk)
    number = len(plan.chunks)
    if not chunk.is_on_device:
        new = replace(chunk, number=number, predecessors=before)
        return replace(plan, chunks=(*plan.chunks, new), rest=left, needs=())
    if len(plan.devices) > 1 or plan.options.placement:
        pieces, transfers, placement = _placed(plan, chunk, facts)
        shifted = tuple(
            replace(piece, number=number + piece.number, predecessors=(
                *before, *(number + other for other in piece.predecessors)))
            for piece in pieces
        )  # fmt: skip
        moved = tuple(
            replace(t, source=number + (t.source or 0), target=number + t.target) for t in transfers
        )
        return replace(plan, chunks=plan.chunks + shifted, transfers=plan.transfers + moved,
                       rest=left, needs=(), placement=plan.placement or placement)  # fmt: skip
    new = lower_chunk(replace(chunk, number=number, predecessors=before), plan.devices[0],
                      plan.options.dtype, facts)  # fmt: skip
    return replace(plan, chunks=(*plan.chunks, new), rest=left, needs=())


def _dependencies(chunks: Sequence[Chunk], chunk: Chunk) -> tuple[int, ...]:
    """Return the chunks that must finish first: writers of inputs, users of device memory."""
    makers = {name: each.number for each in chunks for name in each.graph.outputs}
    before = {makers[info.name] for info in chunk.graph.inputs if info.name in makers}
    if chunk.place != HOST:
        busy = [each for each in chunks if each.place != HOST]
        followed = {number for each in busy for number in each.predecessors}
        before |= {each.number for each in busy} - followed
    return tuple(sorted(before))


def _placed(
    plan: Plan, chunk: Chunk, facts: Facts
) -> tuple[tuple[Chunk, ...], tuple[Transfer, ...], Any]:
    """Return the pieces of a device chunk, the transfers between them, and the placement."""
    place = _door("vklab.plan.place.split")
    if place is None:
        raise SetupError("a model is spread over several devices by vklab/plan/place, which is "
                         "not there; give one device")  # fmt: skip
    made: tuple[tuple[Chunk, ...], tuple[Transfer, ...], Any] = place.split(
        chunk.graph, plan.devices, plan.options, facts,
        lambda piece, unseen: lower_chunk(piece, plan.devices[piece.device], plan.options.dtype,
                                          facts, unseen),
        functools.partial(capability.refusal, **_checks(facts)),
    )  # fmt: skip
    first, *others = made[0]
    return (replace(first, known=chunk.known, reasons=chunk.reasons), *others), made[1], made[2]


# ------------------------------------------------------------------------------------- one chunk


def lower_chunk(
    chunk: Chunk,
    info: DeviceInfo,
    dtype: str = "",
    facts: Facts | None = None,
    unseen: Collection[str] = (),
) -> Chunk:
    """Return a device chunk with its graph rewritten, its dispatches, memory and barriers.

    Args:
        chunk: its graph has an info for every value.
        info: the device.
        dtype: "float16" to compute in half precision.
        facts: as in `make_plan`.
        unseen: inputs and outputs that the host neither writes nor reads.

    Raises PlanError if the device cannot run the chunk.
    """
    _check_switches()
    rewritten = replace(chunk, graph=_rewritten(chunk.graph, dtype), source=chunk.graph)
    return lower_rewritten(rewritten, info, facts, unseen)


def lower_rewritten(
    chunk: Chunk, info: DeviceInfo, facts: Facts | None = None, unseen: Collection[str] = ()
) -> Chunk:
    """Return a device chunk with dispatches, memory and barriers; passes are not run.

    Args:
        chunk: its graph is rewritten already, and has an info for every value.
        info: the device.
        facts: as in `make_plan`.
        unseen: as in `lower_chunk`.
    """
    facts, graph = facts or Facts(), chunk.graph
    resident = facts.resident[chunk.device] if facts.resident else frozenset[str]()
    bound = split_ranges.apply(lowering.with_exact_division(lowering.lower(graph), info), info)
    fusion = _door("vklab.plan.fusion")
    lowered = _finished(fusion.fuse(graph, bound, info) if fusion else bound, info, resident)
    if any(facts.kernel_refusal(d) for d in lowered.dispatches if d.fragment):
        lowered = _finished(bound, info, resident)
    limits.check(lowered.dispatches, info)
    lowered, arranged, steps = _arranged(graph, lowered, info, unseen)
    return replace(
        chunk,
        steps=steps,
        nodes=(*(c.name for c in arranged.copies_in), *lowered.nodes,
               *(c.name for c in arranged.copies_out)),
        barriers=_barriers(steps, arranged),
        memory=arranged.memory,
        input_slots=arranged.input_slots,
        output_slots=arranged.output_slots,
        constants=lowered.constants,
        stored={
            name: storage.stored_dtype(graph.infos[name].dtype, info)
            for name in (*(i.name for i in graph.inputs), *graph.outputs)
        },
        trims=lowered.trims,
    )  # fmt: skip


def _check_switches() -> None:
    """Raise PlanError for a name in DISABLE_PASSES that is neither a pass nor a fusion."""
    passes, fusion = _door("vklab.graph.passes"), _door("vklab.plan.fusion")
    if passes and fusion:
        try:
            settings.check_disabled({*(p.__name__ for p in passes.PASSES), *fusion.names()})
        except ValueError as error:
            raise PlanError(str(error)) from error


def _rewritten(graph: Graph, dtype: str) -> Graph:
    passes = _door("vklab.graph.passes")
    if passes is None and dtype:
        raise SetupError(f"dtype={dtype!r} takes vklab/graph/passes, which is not there")
    return passes.run(graph, dtype) if passes else graph


def _finished(lowered: Lowered, info: DeviceInfo, resident: Collection[str]) -> Lowered:
    """Return dispatches with kernels tuned for a device, in dtypes that it supports."""
    fusion = _door("vklab.plan.fusion")
    tuned = _tune()(lowered, info, resident)
    return storage.adapt(fusion.write(tuned) if fusion else tuned, info)


def _arranged(
    graph: Graph, lowered: Lowered, info: DeviceInfo, unseen: Collection[str]
) -> tuple[Lowered, Arenas, tuple[Step, ...]]:
    """Return dispatches in their final order, their arenas, and the steps with the copies."""
    in_place = _door("vklab.plan.tuning.in_place")
    owners = in_place.owners if in_place else arenas.own_memory
    arranged = arenas.arrange(graph, lowered, info, unseen, owners)
    steps: tuple[Step, ...] = (*arranged.copies_in, *lowered.dispatches, *arranged.copies_out)
    tuning = _door("vklab.plan.tuning.layers")
    count = len(_barriers(steps, arranged))
    layered = tuning.grouped(lowered, arranged, count) if tuning else lowered
    if layered is not lowered:
        again = arenas.arrange(graph, layered, info, unseen, owners)
        fewer: tuple[Step, ...] = (*again.copies_in, *layered.dispatches, *again.copies_out)
        larger = again.memory.arena_bytes > arranged.memory.arena_bytes
        if not larger and len(_barriers(fewer, again)) < count:
            return layered, again, fewer
    return lowered, arranged, steps


def _barriers(steps: Sequence[Step], arranged: Arenas) -> tuple[barriers.Barrier, ...]:
    return barriers.find_barriers([_access(step, arranged.memory.slots) for step in steps])


def _access(step: Step, slots: Mapping[str, Slot]) -> Access:
    if isinstance(step, Copy):
        return Access("transfer", (step.source,), (step.target,))
    reads, writes = tuple(slots[info.name] for _, info in step.reads), []
    for _, info in step.writes:
        first, size = lowering.written_bytes(step, info)
        slot = slots[info.name]
        writes.append(Slot(slot.arena, slot.offset_bytes + first, size))
    return Access("compute_shader", reads, tuple(writes))


# ------------------------------------------------------------------------------ optional folders


def _door(name: str) -> Any:
    """Return a module of an optional folder; None if the folder does not exist."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or name + "."):
            raise
        return None


def _tune() -> Callable[..., Lowered]:
    tuning = _door("vklab.plan.tuning.tune")
    return tuning.tune if tuning else lambda lowered, info, resident=(): lowered


def _checks(facts: Facts) -> dict[str, Any]:
    """Return the arguments that tell `capability` which kernels this machine has."""
    refusals: dict[Any, str] = {}

    def refusal(dispatch: Dispatch) -> str:
        if dispatch.variant not in refusals:  # the answer takes reading files
            refusals[dispatch.variant] = facts.kernel_refusal(dispatch)
        return refusals[dispatch.variant]

    return {"kernel_refusal": refusal, "tune": _tune()}


def _report() -> Any:
    report = _door("vklab.plan.report.table")
    if report is None:
        raise SetupError("plans are drawn by vklab/plan/report, which is not there")
    return report
