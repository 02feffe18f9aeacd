"""Plan: the chunks of a model, and the function that decides them.

partition -> placement and cut -> passes -> lowering -> fusion and tuning -> memory -> barriers.
No driver is called here. Visited by labs 11 and 12.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vklab import settings
from vklab.base import catalogue
from vklab.base.late import Door
from vklab.base.protocols import Content
from vklab.errors import PlanError, UnsupportedOperatorError
from vklab.graph import operator_cache, passes
from vklab.graph.graph import Graph
from vklab.plan import capability, device_chunk, partition, templates
from vklab.plan.barriers import Copy
from vklab.plan.chunk import CONTROL, HOST, Chunk, Transfer
from vklab.plan.memory import MemoryPlan
from vklab.plan.options import Facts, Options
from vklab.plan.tuning import tune
from vklab.types import DeviceInfo, Dispatch, TensorInfo


@dataclass(frozen=True, eq=False)
class Plan(Content):
    """A model's chunks in order, up to the first shape that only a run can tell.

    `print` shows a plan in one line; a notebook shows it as a table.

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
        counts = (
            f"{nodes} nodes",
            f"{len(self.dispatches)} dispatches",
            f"{sum(len(chunk.barriers) for chunk in self.chunks)} barriers",
            f"{len(self.copies)} copies",
            f"{len(self.transfers)} transfers",
        )
        size = f"in {len(self.chunks)} chunks" if len(self.chunks) != 1 else str(self.memory)
        more = "" if self.rest is None else "; the rest is decided by the first run"
        return f"plan for {' and '.join(names)}: {', '.join(counts)}; {size}{more}"

    __repr__ = __str__
    summary = Door[Any]("vklab.plan.report.table", "summary")
    rows = Door[Any]("vklab.plan.report.table", "rows")
    picture = Door[Any]("vklab.plan.report.table", "picture")
    write = Door[Any]("vklab.plan.report.table", "write")
    _repr_html_ = Door[Any]("vklab.plan.report.table", "html")


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


def extend(plan: Plan, infos: Mapping[str, TensorInfo], facts: Facts, memo: Any = None) -> Plan:
    """Return a longer plan that shares the chunks of a given one.

    If a value must be known first, no chunk is added and `needs` names the value.

    Args:
        plan: an incomplete plan.
        infos: dtype and shape of every value in `live`, with the contents of those in `needs`.
        facts: as in `make_plan`.
        memo: a list in which plans of other shapes leave what this one can reuse, or None.
    """
    assert plan.rest is not None, "a complete plan cannot grow"
    if memo is not None:
        return templates.extend(functools.partial(extend, plan), plan, infos, facts, memo)
    with settings.settings(**plan.options.switches), operator_cache.active():
        require = functools.partial(capability.require, **_checks(facts))
        after_host = bool(plan.chunks) and not plan.chunks[-1].is_on_device
        answer = partition.next_chunk(
            plan.rest, infos, plan.devices, facts.evaluate, require, after_host
        )
        if isinstance(answer, partition.Needed):
            return replace(plan, needs=(*plan.needs, *answer.names))
        chunk, rest = answer
        # A device chunk has reasons too: for outputs folded on the host while planning.
        if chunk.place != CONTROL and chunk.reasons and not settings.get("FALLBACK"):
            reason = next(iter(chunk.reasons.values()))
            raise UnsupportedOperatorError(f"{reason} (VKLAB_FALLBACK=0 keeps off the host)")
        return _with(plan, chunk, rest, facts)


def _with(plan: Plan, chunk: Chunk, rest: Graph, facts: Facts) -> Plan:
    """Return a plan with one more chunk, or with the chunks into which placement cuts it."""
    left = rest if rest.nodes else None
    before = _dependencies(plan.chunks, chunk)
    number = len(plan.chunks)
    if chunk.is_on_device and (len(plan.devices) > 1 or plan.options.placement):
        pieces, transfers, placement = _placed(plan, chunk, facts)
        shifted = tuple(
            replace(
                piece,
                number=number + piece.number,
                predecessors=(*before, *(number + other for other in piece.predecessors)),
            )
            for piece in pieces
        )
        moved = tuple(_shifted(transfer, number) for transfer in transfers)
        return replace(
            plan,
            chunks=plan.chunks + shifted,
            transfers=plan.transfers + moved,
            rest=left,
            needs=(),
            placement=plan.placement or placement,
        )
    new = replace(chunk, number=number, predecessors=before)
    if chunk.is_on_device:
        new = lower_chunk(new, plan.devices[0], plan.options.dtype, facts)
    return replace(plan, chunks=(*plan.chunks, new), rest=left, needs=())


def _shifted(transfer: Transfer, number: int) -> Transfer:
    assert transfer.source is not None, "placement returns transfers between chunks only"
    return replace(transfer, source=number + transfer.source, target=number + transfer.target)


def _dependencies(chunks: Sequence[Chunk], chunk: Chunk) -> tuple[int, ...]:
    """Return the chunks that must finish first: writers of inputs, users of device memory."""
    makers = {name: each.number for each in chunks for name in each.graph.outputs}
    before = {makers[info.name] for info in chunk.graph.inputs if info.name in makers}
    if chunk.place != HOST:
        # Chunks that use device memory run one after the other, because they may share buffers.
        # A control chunk counts: its bodies run on the device. It is enough to wait for the
        # chunks that no other one follows.
        busy = [each for each in chunks if each.place != HOST]
        followed = {number for each in busy for number in each.predecessors}
        before |= {each.number for each in busy} - followed
    return tuple(sorted(before))


def _placed(
    plan: Plan, chunk: Chunk, facts: Facts
) -> tuple[tuple[Chunk, ...], tuple[Transfer, ...], Any]:
    """Return the pieces of a device chunk, the transfers between them, and the placement."""
    made: tuple[tuple[Chunk, ...], tuple[Transfer, ...], Any] = catalogue.step("place nodes")(
        chunk.graph,
        plan.devices,
        plan.options,
        facts,
        lambda piece, unseen: lower_chunk(
            piece, plan.devices[piece.device], plan.options.dtype, facts, unseen
        ),
        functools.partial(capability.refusal, **_checks(facts)),
    )
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
    catalogue.check_names()
    graph = passes.run(chunk.graph, dtype, info)
    return lower_rewritten(replace(chunk, graph=graph, source=chunk.graph), info, facts, unseen)


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
    return device_chunk.lower(chunk, info, facts or Facts(), unseen)


def _checks(facts: Facts) -> dict[str, Any]:
    """Return the arguments that tell `capability` which kernels this machine has."""
    refusals: dict[Any, str] = {}

    def refusal(dispatch: Dispatch) -> str:
        if dispatch.variant not in refusals:  # the answer takes reading files
            refusals[dispatch.variant] = facts.kernel_refusal(dispatch)
        return refusals[dispatch.variant]

    return {"kernel_refusal": refusal, "tune": tune.adapt}
