"""What a process begins with that forces values between two devices onto any of their paths."""

from __future__ import annotations

__all__ = ["FAKE", "START"]

# DISABLE_DIRECT_IO has devices treated as if the host did not see their memory.
START = """
import sys
import numpy as np, vklab
from support.runs.split_models import *
from vklab import settings
from vklab.errors import *
from vklab.plan.memory import ARRIVING
from vklab.runtime.many import device_copies, transfer_memory
from vklab.runtime.many.transfer_memory import TransferMemory
source, fed = diamond()
one = outputs_of(source, fed)
def load(**switches):
    with settings.settings(DISABLE_DIRECT_IO=True, **switches):
        session = vklab.load(source, devices=BOTH, place=DIAMOND)
        session.run(fed)
    return session
def paths(session):
    found = [move["path"] for move in session.plan.summary()["moves"]]
    assert found.count("same memory") == 2 and len(found) == 5
    return set(found) - {"same memory"}
def reasons(session):
    return {move["reason"] for move in session.plan.summary()["moves"]} - {""}
# Every transfer counts: with any one of them corrupted, at its first byte or its last, results
# differ. The memory is mapped on these drivers.
def every_transfer_counts(**switches):
    real, corrupted, where, ran = TransferMemory.moves, "", 0, []
    def moves(memory):
        return {move: wrapped(memory, move, call) for move, call in real(memory).items()}
    def wrapped(memory, move, call):
        def run():
            call()
            slot = memory.plan.chunks[move.target].input_slots[move.value]
            assert slot.arena.startswith(ARRIVING)
            ran.append(move.value)
            if move.value == corrupted:
                mapped = memory._pools[move.target].buffers[slot.arena].mapped
                place = np.frombuffer(mapped, np.float32, slot.size_bytes // 4, slot.offset_bytes)
                place[where] += 1
        return run
    TransferMemory.moves = moves
    try:
        with load(**switches) as session:
            for corrupted in ("", "a", "d", "e"):
                for where in (0, -1):
                    ran = []
                    differ = differs(one, session.run(fed))
                    assert (differ > 1e-4) == bool(corrupted), (corrupted, where, differ)
                    assert sorted(ran) == ["a", "d", "e"]
            return paths(session), reasons(session)
    finally:
        TransferMemory.moves = real
"""

FAKE = (
    START
    + """
from support.fakes.fake_dma_buf import *
def fresh(**facts):
    open_devices.close_all()
    assert api.live_handles() == {} and not fake.memory and not descriptors()
    fake.__dict__.update({"features": EXPORTABLE | IMPORTABLE, "lacking": set(),
                          "reads_elsewhere": False, "dedicated": 0, **facts})
fake = FakeDmaBuf()
"""
)
