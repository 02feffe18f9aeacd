"""Which arena every value lies in: weights, inputs, outputs or activations, and what is copied.

Inputs and outputs are used in place where a device reads and writes them well there; else they
are copied at the ends of a run. Visited by labs 03 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vklab import settings
from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan import limits, memory, storage
from vklab.plan.chunks import Copy
from vklab.plan.lowering import Lowered
from vklab.plan.memory import Lifetime, MemoryPlan, Slot
from vklab.types import DeviceInfo

__all__ = ["Arenas", "arrange"]

# Up to these sizes a kernel reads or writes host memory in place even over a bus.
DIRECT_INPUT_BYTES = 64 << 10
DIRECT_OUTPUT_BYTES = 1 << 20
COUNT_BYTES = 4
_LOCAL, _VISIBLE, _CACHED = 1, 2, 8
Sizes = dict[str, int]


@dataclass(frozen=True)
class Arenas:
    """The memory plan, where the host writes inputs and reads outputs, and the copies between."""

    memory: MemoryPlan
    input_slots: dict[str, Slot]
    output_slots: dict[str, Slot]
    copies_in: tuple[Copy, ...]
    copies_out: tuple[Copy, ...]


def arrange(graph: Graph, lowered: Lowered, info: DeviceInfo) -> Arenas:
    """Give every value a slot on a device, and say what must be copied."""
    roots, limit = lowered.roots, limits.arena_limit_bytes(info)
    read = {roots[i.name] for d in lowered.dispatches for _, i in d.reads}
    inputs = {i.name: storage.widen(i, info).size_bytes for i in graph.inputs}
    infos = [storage.widen(graph.infos[name], info) for name in graph.outputs]
    outputs = {roots[i.name]: i.size_bytes for i in infos}
    outputs |= {roots[name]: COUNT_BYTES for cut in lowered.trims.values() for _, name in cut}
    staged_in = _staged_inputs(inputs, read, info)
    staged_out = _staged_outputs(outputs, read, lowered, info)

    most = info.limits.get("maxBufferSize") or 1 << 62
    for name, size in (*inputs.items(), *outputs.items()):
        if isinstance(most, int) and size > most:
            raise PlanError(f"{name} takes {size} bytes, a buffer of {info.name} at most {most}")
    slots, arenas = memory.pack(_weights(lowered, outputs).items(), "weights", limit)
    input_slots, input_arenas = memory.pack(inputs.items(), "inputs", limit)
    output_slots, output_arenas = memory.pack(outputs.items(), "outputs", limit)
    slots |= {name: slot for name, slot in input_slots.items() if name not in staged_in}
    slots |= {name: slot for name, slot in output_slots.items() if name not in staged_out}
    lifetimes = _lifetimes(lowered, set(slots), staged_in, staged_out)
    offsets, size = memory.assign_offsets(lifetimes, not settings.get("DISABLE_ALIASING"))
    memory.check_offsets(lifetimes, offsets, size)
    if isinstance(most, int) and size > most:
        largest = max(lifetimes, key=lambda life: life.size_bytes)
        raise PlanError(f"values that live at once take {size} bytes ({largest.name} alone "
                        f"{largest.size_bytes}), a buffer of {info.name} has at most {most}")
    slots |= {
        life.name: Slot("activations", offsets[life.name], life.size_bytes) for life in lifetimes
    }
    arenas |= input_arenas | output_arenas | ({"activations": size} if size else {})
    views = {name: slots[root] for name, root in roots.items() if root in slots}
    return Arenas(
        memory=MemoryPlan(views, arenas, lifetimes, memory.lower_bound(lifetimes)),
        input_slots=input_slots,
        output_slots={n: output_slots[root] for n, root in roots.items() if root in outputs},
        copies_in=tuple(Copy(name, input_slots[name], slots[name]) for name in staged_in),
        copies_out=tuple(Copy(name, slots[name], output_slots[name]) for name in staged_out),
    )


def _weights(lowered: Lowered, outputs: Iterable[str]) -> Sizes:
    """Return the constants that a dispatch or the host reads, with their bytes."""
    touched = (lowered.roots[i.name] for d in lowered.dispatches for _, i in d.reads)
    names = dict.fromkeys([*touched, *outputs])
    return {
        name: lowered.constants[name].size_bytes for name in names if name in lowered.constants
    }


def _staged_inputs(inputs: Sizes, read: set[str], info: DeviceInfo) -> Sizes:
    """Return the inputs that are copied to the device before kernels read them."""
    if _reads_in_place(info, sum(inputs.values())):
        return {}
    return {name: size for name, size in inputs.items() if size and name in read}


def _staged_outputs(outputs: Sizes, read: set[str], lowered: Lowered, info: DeviceInfo) -> Sizes:
    """Return the outputs that are copied to the host; what no kernel writes always is."""
    written = {lowered.roots[i.name] for d in lowered.dispatches for _, i in d.writes}
    return {
        name: size
        for name, size in outputs.items()
        if size and not (name in written and _writes_in_place(info, size, name in read))
    }


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
    lowered: Lowered, placed: set[str], staged_in: Sizes, staged_out: Sizes
) -> tuple[Lifetime, ...]:
    """Return when each value without a slot is alive; staged ones reach the first or last step."""
    spans: dict[str, tuple[int, int, int]] = {
        name: (size, 0, 0) for name, size in staged_in.items()
    }
    for step, dispatch in enumerate(lowered.dispatches):
        for _, info in dispatch.reads + dispatch.writes:
            name = lowered.roots[info.name]
            if name in placed:
                continue
            size, first, _ = spans.get(name, (info.size_bytes, step, step))
            spans[name] = (max(size, info.size_bytes), first, step)
    end = len(lowered.dispatches)
    return tuple(
        Lifetime(name, size, first, end if name in staged_out else last)
        for name, (size, first, last) in spans.items()
    )
