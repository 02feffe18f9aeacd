"""Plan: every decision about one model on one device, and the walk that makes it.

graph -> dispatches -> variants -> memory -> chunks; nothing here touches a driver.
Visited by labs 11 and 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vklab import draw, settings
from vklab.graph import passes, shapes
from vklab.graph.graph import Graph
from vklab.plan import chunks, limits, memory, variants
from vklab.plan.chunks import Chunk, Copy, Step, Work
from vklab.plan.memory import Lifetime, MemoryPlan, Slot
from vklab.types import DeviceInfo, Dispatch, Operands, TensorInfo

__all__ = ["Lowered", "Plan", "lower", "make_plan", "plan_model"]

# Up to these sizes a kernel reads or writes host memory in place even over a bus.
DIRECT_INPUT_BYTES = 64 << 10
DIRECT_OUTPUT_BYTES = 1 << 20
_LOCAL, _VISIBLE, _CACHED = 1, 2, 8


@dataclass(frozen=True)
class Lowered:
    """A graph's dispatches in order, the node of each, and which values share memory.

    `roots` maps every value to the one whose memory it lies in; `constants` are the roots whose
    value is known.
    """

    dispatches: tuple[Dispatch, ...]
    nodes: tuple[str, ...]
    roots: dict[str, str]
    constants: dict[str, TensorInfo]


@dataclass(frozen=True)
class Plan:
    """How one model runs on one device: prints itself in a line and draws itself as a table."""

    graph: Graph
    device: str
    memory: MemoryPlan
    chunks: tuple[Chunk, ...]
    host_slots: dict[str, Slot]
    constants: dict[str, TensorInfo]

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
                defines = dict(step.defines)
                kernel = defines.get("EXPRESSION", step.kernel)
                rows.append((node, kernel, "x".join(map(str, step.workgroups)), written))
        return rows

    def _repr_html_(self) -> str:
        headers = ("node", "kernel", "workgroups", "writes")
        return draw.table_html(str(self), headers, self.rows()) + self.memory._repr_html_()


def plan_model(graph: Graph, sizes: Mapping[str, int], info: DeviceInfo) -> Plan:
    """Walk from an imported graph to a plan: bind open dimensions, infer shapes, run passes, plan.

    Args:
        sizes: a number for every open dimension of the inputs.
    """
    shaped = shapes.infer(shapes.bind(graph, sizes))
    return make_plan(passes.run(shaped), info)


def make_plan(graph: Graph, info: DeviceInfo) -> Plan:
    """Decide everything about running a shaped graph on a device.

    Raises PlanError where the device cannot hold it.
    """
    lowered = lower(graph)
    lowered = _with_variants(lowered, info)
    limits.check(lowered.dispatches, info)
    placed, host_slots, copies_in, copies_out = _place(graph, lowered, info)
    steps: list[Step] = [*copies_in, *lowered.dispatches, *copies_out]
    names = [c.name for c in copies_in], list(lowered.nodes), [c.name for c in copies_out]
    work = [_work(step, placed.slots, lowered.roots) for step in steps]
    chunk = Chunk(
        steps=tuple(steps),
        barriers=chunks.find_barriers(work),
        nodes=tuple(name for group in names for name in group),
    )
    return Plan(
        graph=graph,
        device=info.name,
        memory=_with_views(placed, lowered.roots),
        chunks=(chunk,) if steps else (),
        host_slots=host_slots,
        constants=lowered.constants,
    )


def lower(graph: Graph) -> Lowered:
    """Ask every node for its dispatches and give all their tensors names."""
    infos = {info.name: info for info in (*graph.inputs, *graph.initializers.values())}
    roots = {name: name for name in infos}
    dispatches: list[Dispatch] = []
    nodes: list[str] = []
    for node in graph.nodes:
        result, outputs = shapes.apply_node(graph, node, infos)
        renamed = {id(old): new for old, new in zip(result.outputs, outputs, strict=False)}
        for number, extra in enumerate(result.outputs[len(outputs) :]):
            renamed[id(extra)] = replace(extra, name=f"{node.name}:unused{number}")
        for number, scratch in enumerate(result.scratch):
            renamed[id(scratch)] = replace(scratch, name=f"{node.name}:scratch{number}")
        for info in renamed.values():
            infos[info.name] = info
            roots[info.name] = info.name
        for written, read in result.views:
            roots[outputs[written].name] = roots[node.inputs[read]]
        for dispatch in result.dispatches:
            reads, writes = _rename(dispatch.reads, renamed), _rename(dispatch.writes, renamed)
            dispatches.append(replace(dispatch, reads=reads, writes=writes))
            nodes.append(node.name)
    constants = {name: info for name, info in infos.items() if info.constant is not None}
    return Lowered(tuple(dispatches), tuple(nodes), roots, constants)


def _with_variants(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Swap in what is fastest on the device; what that writes in between is a root of its own."""
    dispatches: list[Dispatch] = []
    nodes: list[str] = []
    roots = dict(lowered.roots)
    for node, dispatch in zip(lowered.nodes, lowered.dispatches, strict=True):
        for chosen in variants.choose(dispatch, info):
            dispatches.append(chosen)
            nodes.append(node)
            for _, written in chosen.writes:
                roots.setdefault(written.name, written.name)
    return replace(lowered, dispatches=tuple(dispatches), nodes=tuple(nodes), roots=roots)


def _rename(operands: Operands, renamed: dict[int, TensorInfo]) -> Operands:
    return tuple((binding, renamed.get(id(info), info)) for binding, info in operands)


def _place(
    graph: Graph, lowered: Lowered, info: DeviceInfo
) -> tuple[MemoryPlan, dict[str, Slot], list[Copy], list[Copy]]:
    """Give every root a slot: weights, inputs, outputs, activations; and the copies needed."""
    roots, dispatches = lowered.roots, lowered.dispatches
    touched = {roots[i.name]: i for d in dispatches for _, i in d.reads + d.writes}
    read = {roots[i.name] for d in dispatches for _, i in d.reads}
    written = {roots[i.name] for d in dispatches for _, i in d.writes}
    limit = limits.arena_limit_bytes(info)
    needed = [*touched, *(roots[name] for name in graph.outputs)]
    constants = dict.fromkeys(name for name in needed if name in lowered.constants)
    slots, arenas = memory.pack(
        [(name, lowered.constants[name].size_bytes) for name in constants], "weights", limit
    )
    inputs = [(i.name, i.size_bytes) for i in graph.inputs]
    direct = _reads_in_place(info, sum(size for _, size in inputs))
    staged_in = [] if direct else [item for item in inputs if item[0] in read]
    input_slots, input_arenas = memory.pack(inputs, "inputs", limit)
    slots |= {name: slot for name, slot in input_slots.items() if (name, slot.size_bytes)
              not in staged_in}  # fmt: skip
    outputs = list(dict.fromkeys(roots[name] for name in graph.outputs))
    sizes = {roots[name]: graph.infos[name].size_bytes for name in graph.outputs}
    output_slots, output_arenas = memory.pack([(n, sizes[n]) for n in outputs], "outputs", limit)
    staged_out = [
        name for name in outputs
        if sizes[name]
        and (name not in written or not _writes_in_place(info, sizes[name], name in read))
    ]  # fmt: skip
    slots |= {name: slot for name, slot in output_slots.items() if name not in staged_out}
    lifetimes = _lifetimes(dispatches, roots, set(slots), dict(staged_in), set(staged_out))
    offsets, size = memory.assign_offsets(lifetimes, not settings.get("DISABLE_ALIASING"))
    slots |= {
        life.name: Slot("activations", offsets[life.name], life.size_bytes) for life in lifetimes
    }
    arenas |= input_arenas | output_arenas | ({"activations": size} if size else {})
    placed = MemoryPlan(slots, arenas, lifetimes, memory.lower_bound(lifetimes))
    copies_in = [Copy(name, input_slots[name], slots[name]) for name, _ in staged_in]
    copies_out = [Copy(name, slots[name], output_slots[name]) for name in staged_out]
    host = input_slots | {name: output_slots[roots[name]] for name in graph.outputs}
    return placed, host, [c for c in copies_in if c.source.size_bytes], copies_out


def _memory_flags(info: DeviceInfo) -> Iterable[int]:
    return (memory_type.bits for memory_type in info.memory_types)


def _reads_in_place(info: DeviceInfo, size_bytes: int) -> bool:
    """Tell whether kernels read inputs where the host writes them: unified memory, ReBAR, small."""
    if settings.get("DISABLE_DIRECT_IO"):
        return False
    shared = _LOCAL | _VISIBLE
    return size_bytes <= DIRECT_INPUT_BYTES or any(
        flags & shared == shared for flags in _memory_flags(info)
    )


def _writes_in_place(info: DeviceInfo, size_bytes: int, is_read: bool) -> bool:
    """Tell whether kernels write an output where the host reads it: unified memory, or small."""
    if settings.get("DISABLE_DIRECT_IO"):
        return False
    unified = _LOCAL | _VISIBLE | _CACHED
    if any(flags & unified == unified for flags in _memory_flags(info)):
        return True
    return size_bytes <= DIRECT_OUTPUT_BYTES and not is_read


def _lifetimes(
    dispatches: tuple[Dispatch, ...],
    roots: dict[str, str],
    placed: set[str],
    staged_in: dict[str, int],
    staged_out: set[str],
) -> tuple[Lifetime, ...]:
    """Return when each value without a slot is alive; staged ones reach the first or last step."""
    spans: dict[str, tuple[int, int, int]] = {
        name: (size, 0, 0) for name, size in staged_in.items()
    }
    for step, dispatch in enumerate(dispatches):
        for _, info in dispatch.reads + dispatch.writes:
            name = roots[info.name]
            if name in placed:
                continue
            size, first, _ = spans.get(name, (info.size_bytes, step, step))
            spans[name] = (max(size, info.size_bytes), first, step)
    end = len(dispatches)
    return tuple(
        Lifetime(name, size, first, end if name in staged_out else last)
        for name, (size, first, last) in spans.items()
    )


def _work(step: Step, slots: dict[str, Slot], roots: dict[str, str]) -> Work:
    if isinstance(step, Copy):
        return Work("transfer", (step.source,), (step.target,))
    reads = tuple(slots[roots[info.name]] for _, info in step.reads)
    return Work("compute_shader", reads, tuple(slots[roots[i.name]] for _, i in step.writes))


def _with_views(plan: MemoryPlan, roots: dict[str, str]) -> MemoryPlan:
    """Return the memory plan with a slot for every view as well."""
    slots = {name: plan.slots[root] for name, root in roots.items() if root in plan.slots}
    return replace(plan, slots=slots)
