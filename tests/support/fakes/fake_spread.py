"""What runs a split model, on devices that are not there: true places and order, and no work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import helper

from support.checks import plan_checks
from support.fakes.fake_device import DISCRETE, UNIFIED, fake_device
from support.graphs.small_models import model, random_array, value
from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.chunk import Chunk
from vklab.plan.options import Options, PlacementOptions
from vklab.plan.plan import Plan, make_plan
from vklab.runtime import buffers
from vklab.runtime.buffers import BufferPool
from vklab.runtime.many import device_copies, transfer_memory
from vklab.runtime.many.split import ChunkGroup
from vklab.runtime.many.transfer_memory import TransferMemory
from vklab.runtime.program import Program
from vklab.types import DeviceInfo
from vklab.vulkan.command import CommandBuffer
from vklab.vulkan.host_memory import EXTENSION

FLOAT, HALF = 1, 10
MANY = 1 << 20  # elements that no kernel writes through a bus
NARROW = frozenset().union(*(element.needs for element in ELEMENTS.values()))
# Five chunks: a; b of the same device; c and d of the other, which e joins with b; f.
PINS = {"[abe]": 0, "[cdf]": 1}


def pinned(graph: Graph, infos: Sequence[DeviceInfo], pins: Mapping[str, int]) -> Plan:
    """Plan a graph whose shapes are known for some devices, with nodes where they are pinned."""
    options = Options(placement=PlacementOptions(pins=pins))
    return make_plan(graph, {info.name: info for info in graph.inputs}, infos, options)


def placed(proto, types, other, features, pins) -> Plan:
    """Plan a model for two devices with these types of memory, the second with features."""
    infos = [
        fake_device(memory_types=types, name="first"),
        fake_device(memory_types=other, name="second", index=1, features=features),
    ]
    return pinned(onnx_import.load_graph(proto), infos, pins)


def planned(types=UNIFIED, elements=64, dtype=FLOAT, features=frozenset()) -> Plan:
    """Plan two branches that meet, with a second input and an output on the way."""
    steps = [
        ("Relu", "x", "a"),
        ("Neg", "a", "b"),
        ("Exp", "a", "c"),
        ("Mul", "c z", "d"),
        ("Add", "b d", "e"),
        ("Max", "e w", "f"),
    ]
    nodes = [helper.make_node(op, read.split(), [made], made) for op, read, made in steps]
    ends = [value(name, (elements,), dtype) for name in ("f", "b")]
    weight = random_array((elements,)).astype("float16" if dtype == HALF else "float32")
    proto = model(nodes, [value(n, (elements,), dtype) for n in "xz"], ends, {"w": weight})
    return placed(proto, types, types, features, PINS)


def half() -> Plan:
    """Plan values that one device stores in 16 bits and the other in 32."""
    return planned(dtype=HALF, features=NARROW)


def large() -> Plan:
    """Plan values that move past the host, but for the output."""
    return planned(types=DISCRETE, elements=MANY)


def mutated(monkeypatch, owner, name, change):
    """Change what a function returns."""
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: change(real(*given)))


def caught(message, make, *given):
    """Fail unless a wrong plan is found out for what is wrong with it."""
    with pytest.raises(AssertionError, match=message):
        make(*given)
    assert plan_checks.problems
    plan_checks.problems.clear()


# ------------------------------------------------------------------------------ what runs them

_handles = iter(range(1, 1 << 30))


class FakeMemory:
    """A buffer, or memory of the host: a handle of its own."""

    def __init__(self, *given: object) -> None:
        self.handle = next(_handles)
        self.size_bytes = max(each for each in given if isinstance(each, int))

    def close(self) -> None:
        """Hold nothing."""


class FakeRing:
    """A path that moves nothing."""

    refusal = ""

    def __init__(self, *given: object) -> None: ...

    def add(self, *given: object) -> device_copies.Move:
        return lambda: None

    def close(self) -> None: ...


class FakeProgram:
    """The program of a chunk as far as it knows where its values are."""

    _buffer_at = Program._buffer_at

    def __init__(
        self, chunk: Chunk, pool: BufferPool, copied_in: Sequence[str], copied_out: Sequence[str],
        given: Mapping[str, Any], commands: type[CommandBuffer] | None = None,
    ) -> None:  # fmt: skip
        # Chunks that run side by side wait for fences; only a lone one may poll for an event.
        assert commands in (None, CommandBuffer)
        self.chunk, self.copied_in, self.copied_out = chunk, copied_in, copied_out
        self.polls = True
        self._given = given
        pool.fit(chunk.memory.arenas, "a test")
        self._buffers = dict(pool.buffers)
        self._weights = {
            name: (FakeMemory(size), 0)
            for name, size in chunk.memory.arenas.items()
            if not buffers.kind_of(name)
        }
        self.opened = SimpleNamespace(is_stuck=False)

    def close(self) -> None:
        """Hold nothing."""


class FakeExecutor:
    """What makes programs for devices that are not there."""

    def __init__(self, opened: Sequence[Any]) -> None:
        self.devices = [SimpleNamespace(opened=each) for each in opened]

    def program(self, state: Any, chunk: Chunk, pool: BufferPool, **more: Any) -> FakeProgram:
        assert state is self.devices[chunk.device]
        return FakeProgram(chunk, pool, **more)


def group_of(monkeypatch: pytest.MonkeyPatch, plan: Plan, shares: bool = True) -> ChunkGroup:
    """Return what would run a plan.

    Args:
        shares: the devices can share memory of the host.
    """
    monkeypatch.setattr(buffers, "Buffer", FakeMemory)
    for name in ("HostMemory", "ImportedBuffer"):
        monkeypatch.setattr(transfer_memory, name, FakeMemory)
    monkeypatch.setattr(device_copies, "StagingRing", FakeRing)
    device: Any = SimpleNamespace(extensions={EXTENSION} if shares else ())
    opened: Any = [
        SimpleNamespace(
            info=info, device=device, allocator=None, is_stuck=False, owned=lambda name, make: None
        )
        for info in plan.devices
    ]
    executor: Any = FakeExecutor(opened)
    return ChunkGroup(plan, executor, TransferMemory(plan, opened))
