"""What runs a split model, on devices that are not there: true places and order, and no work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.plan.stages import Stage
from vklab.runtime import reserve, shared, ways
from vklab.runtime.record import Program
from vklab.runtime.shared import Shared
from vklab.runtime.spread import Spread
from vklab.vulkan.host_memory import EXTENSION

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

    def add(self, *given: object) -> ways.Move:
        return lambda: None

    def close(self) -> None: ...


class FakeProgram:
    """The program of a stage as far as it knows where its values lie."""

    place = Program.place

    def __init__(self, stage: Stage, plan: Plan, memory: Shared) -> None:
        self.plan = plan
        made = memory.reserve(stage)
        self._given = memory.given(stage)
        made.fit(plan.memory.arenas, "a test")
        self._buffers = dict(made.buffers)
        self._weights = {name: (FakeMemory(size), 0) for name, size in plan.memory.arenas.items()
                         if not reserve.kind_of(name)}  # fmt: skip
        self.opened = SimpleNamespace(is_stuck=False)

    def close(self) -> None:
        """Hold nothing."""


def spread_of(monkeypatch: pytest.MonkeyPatch, plan: SpreadPlan, shares: bool = True) -> Spread:
    """Return what would run a plan.

    Args:
        shares: the devices can share memory of the host.
    """
    monkeypatch.setattr(reserve, "Buffer", FakeMemory)
    for name in ("HostMemory", "ImportedBuffer"):
        monkeypatch.setattr(shared, name, FakeMemory)
    monkeypatch.setattr(ways, "Ring", FakeRing)
    device: Any = SimpleNamespace(extensions={EXTENSION} if shares else ())
    opened: Any = [
        SimpleNamespace(info=info, device=device, allocator=None, lane=None, is_stuck=False)
        for info in plan.devices
    ]
    return Spread(plan, FakeProgram, opened, Shared(plan, opened))  # type: ignore[arg-type]
