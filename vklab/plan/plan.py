"""Plan: every decision about one model on one device, and the walk that makes it.

graph -> dispatches -> variants -> layers and memory -> chunks; nothing here touches a driver.
Visited by labs 11 and 12.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vklab import draw
from vklab.graph import passes, shapes
from vklab.graph.graph import Graph
from vklab.plan import arenas, barriers, fusion, limits, lowering, split_ranges, storage
from vklab.plan.arenas import Arenas
from vklab.plan.barriers import Access, Chunk, Copy, Step
from vklab.plan.fusion import codegen
from vklab.plan.lowering import Lowered, Trim
from vklab.plan.memory import MemoryPlan, Slot
from vklab.plan.report import picture
from vklab.plan.tuning import layers
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["Plan", "make_plan", "plan_model"]


@dataclass(frozen=True)
class Plan:
    """How one model runs on one device: prints itself in a line and draws itself as a table."""

    graph: Graph
    device: str
    memory: MemoryPlan
    chunks: tuple[Chunk, ...]
    input_slots: dict[str, Slot]
    output_slots: dict[str, Slot]
    constants: dict[str, TensorInfo]
    stored: dict[str, str]
    trims: dict[str, tuple[Trim, ...]]

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Return all dispatches in the order in which they run."""
        return tuple(s for chunk in self.chunks for s in chunk.steps if isinstance(s, Dispatch))

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Return the copies between host-visible and device memory."""
        return tuple(s for chunk in self.chunks for s in chunk.steps if isinstance(s, Copy))

    def summary(self) -> dict[str, Any]:
        """Return the counts that describe the plan, ready for JSON."""
        return {
            "nodes": len(self.graph.nodes),
            "dispatches": len(self.dispatches),
            "generated_kernels": len({d.variant for d in self.dispatches if d.fragment}),
            "barriers": sum(len(chunk.barriers) for chunk in self.chunks),
            "chunks": len(self.chunks),
            "transfers": len(self.copies),
            "arena_bytes": self.memory.arena_bytes,
            "lower_bound_bytes": self.memory.lower_bound_bytes,
            "weights_bytes": self.memory.weights_bytes,
            "host_nodes": [],
            "placement": {node.name: self.device for node in self.graph.nodes},
        }

    def __str__(self) -> str:
        facts = self.summary()
        return (
            f"plan for {self.device}: {facts['nodes']} nodes, {facts['dispatches']} dispatches, "
            f"{facts['barriers']} barriers, {facts['transfers']} copies; {self.memory}"
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return node, kernel, workgroups and written values of each step, as text."""
        rows = []
        for chunk in self.chunks:
            for node, step in zip(chunk.nodes, chunk.steps, strict=True):
                if isinstance(step, Copy):
                    rows.append((node, "copy", "", str(step)))
                    continue
                written = ", ".join(str(info) for _, info in step.writes)
                groups = "x".join(map(str, step.workgroups))
                rows.append((node, picture.kernel_label(step), groups, written))
        return rows

    def picture(self, title: str = "") -> str:
        """Draw the dispatches as a graph, and the memory map beneath, as SVG."""
        chunk = self.chunks[0] if self.chunks else None
        return picture.plan_svg(f"{title or self.graph.name}: {self}", chunk, self.memory,
                                self.input_slots, self.output_slots)  # fmt: skip

    def _repr_html_(self) -> str:
        table = draw.table_html(str(self), ("node", "kernel", "workgroups", "writes"), self.rows())
        return f"{self.picture()}<details><summary>all dispatches</summary>{table}</details>"


def plan_model(graph: Graph, sizes: Mapping[str, int], info: DeviceInfo) -> Plan:
    """Walk from an imported graph to a plan: bind open dimensions, infer shapes, run passes, plan.

    Args:
        sizes: a number for every open dimension of the inputs.
    """
    shaped = shapes.infer(shapes.bind(graph, sizes))
    return make_plan(passes.run(shaped), info)


def make_plan(
    graph: Graph, info: DeviceInfo, unavailable: Callable[[Dispatch], str] = lambda dispatch: "",
    unseen: Collection[str] = (), resident: Collection[str] = (),
) -> Plan:  # fmt: skip
    """Decide everything about running a shaped graph on a device.

    Args:
        unavailable: tells why a kernel cannot be had; nothing is fused where a fused one cannot.
        unseen: inputs and outputs that move from device to device past the host.
        lying: names of weights that the device holds for plans of other shapes, by their layout.

    Raises PlanError where the device cannot hold it.
    """
    exact = lowering.with_exact_division(lowering.lower(graph), info)
    bound = split_ranges.apply(exact, info)
    lowered = _finished(fusion.fuse(graph, bound, info), info, resident)
    if any(unavailable(dispatch) for dispatch in lowered.dispatches if dispatch.fragment):
        lowered = _finished(bound, info, resident)
    limits.check(lowered.dispatches, info)
    arranged = arenas.arrange(graph, lowered, info, unseen)
    chunk = _chunk(lowered, arranged)
    layered = layers.grouped(lowered, arranged, len(chunk.barriers))
    if layered is not lowered:
        again = arenas.arrange(graph, layered, info, unseen)
        fewer = _chunk(layered, again)
        larger = again.memory.arena_bytes > arranged.memory.arena_bytes
        if not larger and len(fewer.barriers) < len(chunk.barriers):
            arranged, chunk = again, fewer
    return Plan(
        graph=graph,
        device=info.name,
        memory=arranged.memory,
        chunks=(chunk,) if chunk.steps else (),
        input_slots=arranged.input_slots,
        output_slots=arranged.output_slots,
        constants=lowered.constants,
        stored={
            name: storage.stored_dtype(graph.infos[name].dtype, info)
            for name in (*(i.name for i in graph.inputs), *graph.outputs)
        },
        trims=lowered.trims,
    )


def _finished(lowered: Lowered, info: DeviceInfo, resident: Collection[str]) -> Lowered:
    """Return dispatches with the kernels that a device gets, and types that it has."""
    return storage.adapt(codegen.write(lowering.with_variants(lowered, info, resident)), info)


def _chunk(lowered: Lowered, arranged: Arenas) -> Chunk:
    """Return dispatches between the copies at the ends, with barriers."""
    copies_in, copies_out = arranged.copies_in, arranged.copies_out
    steps: tuple[Step, ...] = (*copies_in, *lowered.dispatches, *copies_out)
    nodes = (*(c.name for c in copies_in), *lowered.nodes, *(c.name for c in copies_out))
    placed = barriers.find_barriers([_work(step, arranged.memory.slots) for step in steps])
    return Chunk(steps, placed, nodes)


def _work(step: Step, slots: dict[str, Slot]) -> Access:
    if isinstance(step, Copy):
        return Access("transfer", (step.source,), (step.target,))
    reads, writes = tuple(slots[info.name] for _, info in step.reads), []
    for _, info in step.writes:
        first, size = lowering.written_bytes(step, info)
        slot = slots[info.name]
        writes.append(Slot(slot.arena, slot.offset_bytes + first, size))
    return Access("compute_shader", reads, tuple(writes))
