"""Plan: the chunks that a model becomes, and the one function that decides them.

partition -> placement and cut -> passes -> lowering -> tuning and fusion -> memory -> barriers.
Nothing here touches a driver. What makes plans better is loaded from optional folders, if they are
there. Visited by labs 11 and 12.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vklab import optional, settings
from vklab.errors import PlanError, SetupError, UnsupportedOperatorError
from vklab.graph.graph import Graph
from vklab.optional import Door
from vklab.plan import capability, device_chunk, partition
from vklab.plan.barriers import Copy
from vklab.plan.chunk import CONTROL, HOST, Chunk, Transfer
from vklab.plan.device_chunk import Tools
from vklab.plan.memory import MemoryPlan
from vklab.plan.options import Facts, Options
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["Plan", "extend", "lower_chunk", "lower_rewritten", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """The chunks of a model from its inputs on, as far as their shapes are known.

    Prints itself in one line and draws itself as a table.

    Attributes:
        graph: the whole model.
        devices: by the numbers that chunks name.
        chunks: in an order in which they can run.
        transfers: values that chunks leave to each other on devices.
        rest: the nodes that no chunk has yet; None where there are none: the plan is complete.
        needs: values that the rest reads, and that must be known before the plan can grow.
        placement: why each node is on its device, where there are several.
        paths: how transfers are made, as a session tells; empty in a plan that nobody runs.
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
        """Return the values that the rest of the model reads; their shapes decide how it runs."""
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
        """Return the memory of the only chunk; PlanError if there are more or none."""
        if len(self.chunks) != 1:
            raise PlanError(f"this plan has {len(self.chunks)} chunks: each has its own memory")
        return self.chunks[0].memory

    @property
    def reasons(self) -> Mapping[str, str]:
        """Return, for each node on the host, why it is there."""
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

    # Functions of the optional folder `plan/report`, whose first parameter is the plan.
    summary = Door("plan.report.table", "summary")
    rows = Door("plan.report.table", "rows")
    picture = Door("plan.report.table", "picture")
    write = Door("plan.report.table", "write")
    _repr_html_ = Door("plan.report.table", "html")


# -------------------------------------------------------------------------------- the whole model


def make_plan(
    graph: Graph,
    inputs: Mapping[str, TensorInfo],
    devices: Sequence[DeviceInfo],
    options: Options | None = None,
    facts: Facts | None = None,
) -> Plan:
    """Decide how a model runs, up to the first size that only a run can tell.

    Args:
        graph: the imported model.
        inputs: dtype and shape of each input; the value, too, where it is known and decides.
        devices: the devices to plan for; chunks name them by their numbers here.
        options: default: those of an unadorned `load`, with the switches of this moment.
        facts: default: an empty machine on which every kernel can be had.

    Raises PlanError where the devices cannot hold it, UnsupportedOperatorError with FALLBACK off.
    """
    start = Plan(graph, tuple(devices), options or Options(), rest=graph)
    return extend(start, inputs, facts or Facts())


def extend(plan: Plan, infos: Mapping[str, TensorInfo], facts: Facts) -> Plan:
    """Return a longer plan that shares the chunks of this one.

    If a value has to be known first, the plan is as long as before and names it in `needs`.

    Args:
        plan: an incomplete plan.
        infos: dtype and shape of every value of `live`, with the values of those in `needs`.
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
    """Return a plan with one more chunk, or with those that several devices make of it."""
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
    """Return the chunks that must end first: makers of inputs; devices' memory has one user."""
    makers = {name: each.number for each in chunks for name in each.graph.outputs}
    found = {makers[info.name] for info in chunk.graph.inputs if info.name in makers}
    if chunk.place != HOST:
        busy = [each for each in chunks if each.place != HOST]
        followed = {number for each in busy for number in each.predecessors}
        found |= {each.number for each in busy} - followed
    return tuple(sorted(found))


def _placed(
    plan: Plan, chunk: Chunk, facts: Facts
) -> tuple[tuple[Chunk, ...], tuple[Transfer, ...], Any]:
    """Return a device chunk cut for several devices, what moves between the pieces, and why."""
    place = optional.require("plan.place.split")
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

    Raises PlanError where the device cannot hold it.
    """
    _check_switches()
    rewritten = replace(chunk, graph=_rewritten(chunk.graph, dtype), source=chunk.graph)
    return lower_rewritten(rewritten, info, facts, unseen)


def lower_rewritten(
    chunk: Chunk, info: DeviceInfo, facts: Facts | None = None, unseen: Collection[str] = ()
) -> Chunk:
    """Return a device chunk with dispatches, memory and barriers; the passes have run.

    Args:
        chunk: its graph has an info for every value.
        info: the device.
        facts: as in `make_plan`.
        unseen: as in `lower_chunk`.
    """
    facts = facts or Facts()
    resident = facts.resident[chunk.device] if facts.resident else frozenset[str]()
    names = ("fusion", "tuning.tune", "tuning.split_ranges", "tuning.in_place", "tuning.layers")
    tools = Tools(*(optional.load(f"plan.{name}") for name in names))
    return device_chunk.lower(chunk, info, tools, facts.kernel_refusal, resident, unseen)


def _check_switches() -> None:
    """Raise PlanError for a name in DISABLE_PASSES that is no pass and no fusion."""
    passes, fusion = optional.load("graph.passes"), optional.load("plan.fusion")
    if passes and fusion:
        known = {"all", *(step.__name__ for step in passes.PASSES), *fusion.names()}
        unknown = sorted(settings.names("DISABLE_PASSES") - known)
        if unknown:
            raise PlanError(f"unknown pass {unknown[0]!r} in VKLAB_DISABLE_PASSES; choose from "
                            f"{', '.join(sorted(known))}")  # fmt: skip


def _rewritten(graph: Graph, dtype: str) -> Graph:
    passes = optional.load("graph.passes")
    if passes is None and dtype:
        raise SetupError(f"dtype={dtype!r} takes vklab/graph/passes, which is not there")
    return passes.run(graph, dtype) if passes else graph


# ------------------------------------------------------------------------------ optional folders


def _checks(facts: Facts) -> dict[str, Any]:
    """Return the arguments by which `capability` tells what kernels nodes get on this machine."""
    refusals: dict[Any, str] = {}

    def refusal(dispatch: Dispatch) -> str:
        if dispatch.variant not in refusals:  # finding out reads files
            refusals[dispatch.variant] = facts.kernel_refusal(dispatch)
        return refusals[dispatch.variant]

    tuning = optional.load("plan.tuning.tune")
    return {"kernel_refusal": refusal, "tune": tuning.adapt if tuning else None}
