"""The ring on simulated devices that copy as late, as early or as oddly as they may; and its
mutants: a ring that leaves out one wait, or mixes up slots, is found out.
"""

from __future__ import annotations

import inspect
import random

import numpy as np
import pytest

pytest.importorskip("vulkan")

from vklab.runtime.many import device_copies

SIZES = [1, 6, 7, 8, 14, 15, 20, 21, 22, 70, 100]
SLOT_BYTES = 7


class Memory:
    """A buffer that everybody sees."""

    def __init__(self, content: np.ndarray) -> None:
        self.content = content
        self.mapped = memoryview(content)

    def close(self) -> None:
        pass


class CopyQueue:
    """A device that does a copy at any moment from its submission to the end of the wait for it."""

    world: list[CopyQueue]
    chance: random.Random

    def __init__(self, opened: object) -> None:
        self.flying: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.world.append(self)

    def record(self, slot, source, target, size_bytes):
        views = (
            np.frombuffer(memory.mapped, np.uint8, size_bytes, start)
            for memory, start in (source, target)
        )
        return tuple(views)

    def submit(self, slot, work):
        assert slot not in self.flying, "a fence is in use twice"
        self.flying[slot] = [work]
        self.progress()

    def wait(self, slot):
        self.progress()
        for source, target in self.flying.pop(slot, ()):
            target[:] = source

    def require_idle(self):
        assert not self.flying

    def close(self):
        pass

    def progress(self):
        """Do some of what is in flight anywhere."""
        for device in self.world:
            for copies in device.flying.values():
                if copies and self.chance.random() < self.eagerness:
                    source, target = copies.pop()
                    target[:] = source

    eagerness = 0.5


def moved(
    kind: type[device_copies.StagingRing], shares: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Move values of all sizes through one ring; return whether all arrived whole."""
    chance = CopyQueue.chance = random.Random(seed)
    CopyQueue.world, CopyQueue.eagerness = [], chance.choice([0.0, 0.1, 0.5, 1.0])
    world = kind.__init__.__globals__
    monkeypatch.setitem(world, "CopyQueue", CopyQueue)
    slots = Memory(np.zeros(2 * SLOT_BYTES, np.uint8))
    other = slots if shares else Memory(np.zeros(2 * SLOT_BYTES, np.uint8))
    monkeypatch.setattr(kind, "_staging", lambda *_: (slots, other))
    monkeypatch.setitem(world, "host_memory_refusal", lambda *_: "" if shares else "they differ")
    ring = kind(None, None, SLOT_BYTES)
    for size in SIZES:
        source = Memory(np.random.default_rng(seed).integers(1, 255, size + 3, np.uint8))
        target = Memory(np.zeros(size + 5, np.uint8))
        move = ring.add((source, 3), (target, 5), size)
        for _ in range(2):
            target.content[:] = 0
            move()
            ring.require_idle()
            if not np.array_equal(source.content[3:], target.content[5:]):
                return False
            assert not target.content[:5].any()
    return True


@pytest.mark.parametrize("shares", [True, False])
def test_every_schedule_of_the_devices_brings_every_byte(shares, monkeypatch):
    assert all(moved(device_copies.StagingRing, shares, seed, monkeypatch) for seed in range(60))


# What is left out or mixed up, what stands there instead, and whether devices share the slots then.
MUTANTS = {
    "emptied before it is full": ("                self._out.wait(slot)\n", "", None),
    "filled before it is empty": ("           if not self.refusal:", "           if False:", True),
    "overwritten by the host": ("                    self._into.wait(slot)\n", "", False),
    "done before all has arrived": ("            for slot in range(SLOTS):\n"
                                    "                self._into.wait(slot)\n", "", None),
    "one slot for all": ("begin = slot * self.slot_bytes", "begin = 0", None),
    "not copied by the host": ("np.copyto(free, filled)", "pass", False),
    "the first piece for all": ("first + start", "first", None),
    "all to one place": ("last + start", "last", None),
    "the last piece as long as a slot": ("min(self.slot_bytes, size_bytes - start)",
                                         "self.slot_bytes", None),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_ring_that_leaves_something_out_loses_bytes(name, monkeypatch):
    old, new, only = MUTANTS[name]
    text = inspect.getsource(device_copies.StagingRing)
    assert text.count(old) == 1
    found = dict(vars(device_copies))
    exec(text.replace(old, new), found)
    for shares in (True, False) if only is None else (only,):
        assert not all(holds(found["StagingRing"], shares, seed, monkeypatch) for seed in range(60))


def holds(
    kind: type[device_copies.StagingRing], shares: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> bool:
    try:
        return moved(kind, shares, seed, monkeypatch)
    except (AssertionError, ValueError):  # a fence in use twice, or bytes beyond the end
        return False
