"""What runs a split model, on devices that are not there: true places and order, and no work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import plan_checks
import pytest
from fake_device import DISCRETE, UNIFIED, fake_device
from onnx import helper
from small_models import model, random_array, value

from vklab.graph import onnx_import, shapes
from vklab.ops.dtypes import ELEMENTS
from vklab.plan import spread
from vklab.plan.place import placement
from vklab.plan.place.cutting import Stage
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.runtime import buffers
from vklab.runtime.many import device_copies, transfer_memory
from vklab.runtime.many.transfer_memory import TransferMemory
from vklab.runtime.program import Program
from vklab.runtime.spread import Spread
from vklab.vulkan.host_memory import EXTENSION

FLOAT, HALF = 1, 10
MANY = 1 << 20  # elements that no kernel writes through a bus
NARROW = frozenset().union(*(element.needs for element in ELEMENTS.values()))
# Five stages: a; b of the same device; c and d of the other, which e joins with b; f.
PINS = {"[abe]": 0, "[cdf]": 1}


def placed(proto, types, other, features, pins) -> SpreadPlan:
    """Plan a model for two devices with these types of memory, the second with features."""
    graph = shapes.infer(onnx_import.load_graph(proto))
    infos = [fake_device(memory_types=types, name="first"),
             fake_device(memory_types=other, name="second", index=1,
                         features=features)]  # fmt: skip
    found = placement.place(graph, infos, pins=pins)
    return spread.make(graph, found, infos, "", lambda dispatch: "")


def planned(types=UNIFIED, elements=64, dtype=FLOAT, features=frozenset()) -> SpreadPlan:
    """Plan two branches that meet, with a second input and an output on the way."""
    steps = [("Relu", "x", "a"), ("Neg", "a", "b"), ("Exp", "a", "c"), ("Mul", "c z", "d"),
             ("Add", "b d", "e"), ("Max", "e w", "f")]  # fmt: skip
    nodes = [helper.make_node(op, read.split(), [made], made) for op, read, made in steps]
    ends = [value(name, (elements,), dtype) for name in ("f", "b")]
    weight = random_array((elements,)).astype("float16" if dtype == HALF else "float32")
    proto = model(nodes, [value(n, (elements,), dtype) for n in "xz"], ends, {"w": weight})
    return placed(proto, types, types, features, PINS)


def half() -> SpreadPlan:
    """Plan values that one device stores in 16 bits and the other in 32."""
    return planned(dtype=HALF, features=NARROW)


def large() -> SpreadPlan:
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
    """A way that moves nothing."""

    refusal = ""

    def __init__(self, *given: object) -> None: ...

    def add(self, *given: object) -> device_copies.Move:
        return lambda: None

    def close(self) -> None: ...


class FakeProgram:
    """The program of a stage as far as it knows where its values lie."""

    place = Program.place

    def __init__(self, stage: Stage, plan: Plan, memory: TransferMemory) -> None:
        self.plan = plan
        made = memory.reserve(stage)
        self._given = memory.given(stage)
        made.fit(plan.memory.arenas, "a test")
        self._buffers = dict(made.buffers)
        self._weights = {name: (FakeMemory(size), 0) for name, size in plan.memory.arenas.items()
                         if not buffers.kind_of(name)}  # fmt: skip
        self.opened = SimpleNamespace(is_stuck=False)

    def close(self) -> None:
        """Hold nothing."""


def spread_of(monkeypatch: pytest.MonkeyPatch, plan: SpreadPlan, shares: bool = True) -> Spread:
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
        SimpleNamespace(info=info, device=device, allocator=None, lane=None, is_stuck=False)
        for info in plan.devices
    ]
    return Spread(plan, FakeProgram, opened, TransferMemory(plan, opened))  # type: ignore[arg-type]
