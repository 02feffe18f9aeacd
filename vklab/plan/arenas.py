"""Assign every value to an arena: weights, inputs, outputs or activations.

Inputs and outputs are used in place where the device accesses host memory fast enough; otherwise
they are copied at the ends of a run. Visited by labs 03 and 11.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vklab import settings
from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan import limits, memory, storage
from vklab.plan.barriers import Copy
from vklab.plan.lowering import Lowered
from vklab.plan.memory import ACTIVATIONS, WEIGHTS, Lifetime, MemoryPlan, Slot
from vklab.types import DeviceInfo

# The alignment of vec4 loads in bytes; some devices require less.
LEAST_ALIGNMENT = 16
# Up to these sizes in bytes a kernel accesses host memory in place, even over a bus. A read waits
# for the bus and a write does not, so the limit of outputs is higher. Chosen, not measured.
DIRECT_INPUT_BYTES = 64 << 10
DIRECT_OUTPUT_BYTES = 1 << 20
COUNT_BYTES = 4
_LOCAL, _VISIBLE, _CACHED = 1, 2, 8
Sizes = dict[str, int]
Owners = Callable[[Lowered, Collection[str], Collection[str]], dict[str, str]]


@dataclass(frozen=True)
class Arenas:
    """A memory plan, the slots of inputs and outputs on the host, and the copies in between."""

    memory: MemoryPlan
    input_slots: dict[str, Slot]
    output_slots: dict[str, Slot]
    copies_in: tuple[Copy, ...]
    copies_out: tuple[Copy, ...]


def own_memory(
    lowered: Lowered, placed: Collection[str], lasting: Collection[str]
) -> dict[str, str]:
    """Return every root as the owner of its memory: no result overwrites an operand.

    Args:
        lowered: the dispatches and the root of each value.
        placed: roots that have a slot already.
        lasting: roots that are read after the last dispatch.
    """
    return {root: root for root in lowered.roots.values()}


def arrange(
    graph: Graph, lowered: Lowered, info: DeviceInfo, unseen: Collection[str] = (),
    owners_of: Owners = own_memory,
) -> Arenas:  # fmt: skip
    """Give every value a slot on a device, and list the copies at the ends of a run.

    Args:
        graph: the chunk's graph.
        lowered: its dispatches.
        info: the device.
        unseen: inputs and outputs that the host neither writes nor reads; empty for one device.
        owners_of: maps each root to the root whose memory it takes over; called as `own_memory`.
    """
    roots, limit = lowered.roots, limits.arena_limit_bytes(info)
    inputs = {i.name: storage.widen(i, info).size_bytes for i in graph.inputs}
    infos = [storage.widen(graph.infos[name], info) for name in graph.outputs]
    outputs = {roots[i.name]: i.size_bytes for i in infos}
    outputs |= {roots[name]: COUNT_BYTES for cut in lowered.trims.values() for _, name in cut}
    seen = {roots[name] for name in graph.outputs if name not in unseen}
    arriving = {name: inputs.pop(name) for name in [*inputs] if name in unseen}
    leaving = {
        roots[n]: outputs.pop(roots[n])
        for n in graph.outputs
        if n in unseen and roots[n] in outputs and roots[n] not in seen
    }
    staged_in, staged_out = _staged(inputs, outputs, leaving, lowered, info)
    # A kernel writes these in place: the output is the input's memory.
    taken = {n: leaving.pop(n) for n in arriving if n in leaving.keys() - staged_out.keys()}
    most = info.limits.get("maxBufferSize") or 1 << 62
    for name, size in (*inputs.items(), *outputs.items(), *arriving.items(), *leaving.items()):
        if isinstance(most, int) and size > most:
            raise PlanError(f"{name} takes {size} bytes, a buffer of {info.name} at most {most}")
    kinds = (
        (inputs, memory.INPUTS),
        (arriving, memory.ARRIVING),
        (outputs, memory.OUTPUTS),
        (leaving, memory.LEAVING),
    )
    packed = [memory.pack(sizes.items(), arena, limit) for sizes, arena in kinds]
    input_slots, output_slots = packed[0][0] | packed[1][0], packed[2][0] | packed[3][0]
    output_slots |= {name: input_slots[name] for name in taken}
    slots, arenas = _weights(lowered, output_slots)
    slots |= {name: slot for name, slot in input_slots.items() if name not in staged_in}
    slots |= {name: slot for name, slot in output_slots.items() if name not in staged_out}
    owners = owners_of(lowered, set(slots), set(staged_out))
    lifetimes = _lifetimes(lowered, owners, set(slots), staged_in, staged_out, info)
    placed, activations = _activations(lifetimes, limit, info)
    slots |= {name: placed[owner] for name, owner in owners.items() if owner in placed}
    for more in (*(sizes for _, sizes in packed), activations):
        arenas |= more
    views = {name: slots[root] for name, root in roots.items() if root in slots}
    for tensor in (info for d in lowered.dispatches for _, info in d.reads + d.writes):
        if tensor.name in lowered.slices:
            whole = slots[roots[tensor.name]]
            start = whole.offset_bytes + lowered.start_bytes(tensor)
            views[tensor.name] = Slot(whole.arena, start, tensor.size_bytes)
    return Arenas(
        memory=MemoryPlan(views, arenas, lifetimes, memory.lower_bound(lifetimes)),
        input_slots=input_slots,
        output_slots={n: output_slots[root] for n, root in roots.items() if root in output_slots},
        copies_in=tuple(Copy(name, input_slots[name], slots[name]) for name in staged_in),
        copies_out=tuple(Copy(name, slots[name], output_slots[name]) for name in staged_out),
    )


def _weights(lowered: Lowered, outputs: Iterable[str]) -> tuple[dict[str, Slot], Sizes]:
    """Return slots of the constants that a dispatch or the host reads, each in its own arena.

    A session decides the address (`runtime.weights`): plans for other shapes share the weight.
    """
    touched = (lowered.roots[i.name] for d in lowered.dispatches for i in d.tensors_read)
    names = dict.fromkeys([*touched, *outputs])
    known = lowered.constants
    sizes = {name: known[name].size_bytes for name in names if name in known}
    slots = {name: Slot(f"{WEIGHTS}{name}", 0, size) for name, size in sizes.items()}
    return slots, {f"{WEIGHTS}{name}": size for name, size in sizes.items()}


def _activations(
    lifetimes: Sequence[Lifetime], limit: int, info: DeviceInfo
) -> tuple[dict[str, Slot], Sizes]:
    """Return a slot for each lifetime: in one arena, or in several if a buffer is too small."""
    slots: dict[str, Slot] = {}
    arenas: Sizes = {}
    left = tuple(lifetimes)
    while left:
        offsets, size = memory.assign_offsets(left, not settings.get("DISABLE_ALIASING"))
        memory.check_offsets(left, offsets, size)
        fitting = [life for life in left if offsets[life.name] + life.size_bytes <= limit]
        if not fitting:
            largest = max(left, key=lambda life: life.size_bytes)
            raise PlanError(
                f"{largest.name} takes {largest.size_bytes} bytes, a buffer of "
                f"{info.name} at most {limit}"
            )
        arena = f"{ACTIVATIONS}{len(arenas) or ''}"
        slots |= {life.name: Slot(arena, offsets[life.name], life.size_bytes) for life in fitting}
        ends = (offsets[life.name] + life.size_bytes for life in fitting)
        arenas[arena] = size if len(fitting) == len(left) else memory.round_up(max(ends), 4)
        left = tuple(life for life in left if life.name not in slots)
    return slots, arenas


def _staged(
    inputs: Sizes, outputs: Sizes, leaving: Sizes, lowered: Lowered, info: DeviceInfo
) -> tuple[Sizes, Sizes]:
    """Return the inputs and the outputs that are staged: copied from and to host-visible memory.

    An output that no kernel writes is always staged.
    """
    roots = lowered.roots
    read = {roots[i.name] for d in lowered.dispatches for i in d.tensors_read}
    written = {roots[i.name] for d in lowered.dispatches for i in d.tensors_written}
    made = written - inputs.keys()  # an input that a kernel changes is copied to its output
    direct = _reads_in_place(info, sum(inputs.values()))
    before = {n: size for n, size in inputs.items() if size and n in read and not direct}
    after = {
        n: size
        for n, size in outputs.items()
        if size and not (n in made and writes_in_place(info, size, n in read))
    }
    return before, after | {n: size for n, size in leaving.items() if n not in made}


def _has_memory(info: DeviceInfo, flags: int) -> bool:
    return any(memory_type.bits & flags == flags for memory_type in info.memory_types)


def _reads_in_place(info: DeviceInfo, size_bytes: int) -> bool:
    """Tell whether kernels read inputs in host memory: unified memory, ReBAR, or small inputs."""
    if settings.get("DISABLE_DIRECT_IO"):
        return False
    return size_bytes <= DIRECT_INPUT_BYTES or _has_memory(info, _LOCAL | _VISIBLE)


def writes_in_place(info: DeviceInfo, size_bytes: int, is_read: bool = False) -> bool:
    """Tell whether kernels write an output in host memory: unified memory, or a small output.

    Args:
        info: the device.
        size_bytes: size of the output.
        is_read: whether a kernel reads the output, too.
    """
    if settings.get("DISABLE_DIRECT_IO"):
        return False
    is_unified = _has_memory(info, _LOCAL | _VISIBLE | _CACHED)
    return is_unified or (size_bytes <= DIRECT_OUTPUT_BYTES and not is_read)


def _lifetimes(
    lowered: Lowered, owners: Mapping[str, str], placed: set[str], staged_in: Sizes,
    staged_out: Sizes, info: DeviceInfo,
) -> tuple[Lifetime, ...]:  # fmt: skip
    """Return the lifetime of each value without a slot; staged ones reach the first or last step.

    A value is alive in every step that may run concurrently with a step that accesses it.
    Source: Aho, Lam, Sethi and Ullman, Compilers (2006), section 9.2.5, Live-Variable Analysis
    """
    spans: dict[str, tuple[int, int, int]] = {
        name: (memory.reserved(size), 0, 0) for name, size in staged_in.items()
    }
    for (begin, last), dispatch in zip(lowered.times, lowered.dispatches, strict=True):
        for _, tensor in dispatch.reads + dispatch.writes:
            root = lowered.roots[tensor.name]
            if root in placed:
                continue
            size, first, _ = spans.get(owners[root], (0, begin, last))
            size = max(size, memory.reserved(lowered.start_bytes(tensor) + tensor.size_bytes))
            spans[owners[root]] = (size, first, last)
    end = len(lowered.dispatches)
    lasting = {owners.get(name, name) for name in staged_out}
    alignment = max(LEAST_ALIGNMENT, info.limit("minStorageBufferOffsetAlignment"))
    return tuple(
        Lifetime(name, size, first, end if name in lasting else last, alignment)
        for name, (size, first, last) in spans.items()
    )
