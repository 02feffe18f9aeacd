"""TransferMemory: buffers of a split model's chunks, and the path of each value between them.

Chunks of one device share a buffer. Between devices, a value in device memory moves by dma-buf or
through a staging ring (`device_copies`); a value in host memory through one allocation that both
devices import, or by a host copy. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab import settings
from vklab.errors import PlanError
from vklab.plan.chunk import Chunk, Transfer
from vklab.plan.memory import ARRIVING, LEAVING
from vklab.plan.place import transfer_paths
from vklab.plan.place.transfer_paths import TransferPath
from vklab.plan.plan import Plan
from vklab.runtime.buffers import BufferPool, kind_of
from vklab.runtime.io_binding import Given
from vklab.runtime.many import device_copies, scheduler
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.dma_buf import ExportedBuffer, OpenedBuffer
from vklab.vulkan.host_memory import ExternalBuffer, HostMemory, ImportedBuffer

Link = tuple[int, int]
ALIGNMENT = "minStorageBufferOffsetAlignment"


class TransferMemory:
    """Memory of a group of chunks, without weights, and the transfers between the chunks.

    Args:
        plan: the chunks, numbered from 0.
        opened: the devices, in the order of the plan's device numbers.
        lender: the memory of the upper bounds, if this plan is to share it.

    Attributes:
        lent: the number of plans that share this memory; the last one frees it.
        paths: the path of each transfer, with the reason why no faster path is used.
        runs: the last run in this memory, if there was one.
    """

    def __init__(
        self, plan: Plan, opened: Sequence[OpenDevice], lender: TransferMemory | None = None
    ) -> None:
        self.plan = plan
        self.lent = 0
        self.paths: dict[Transfer, TransferPath] = {}
        self._opened = opened
        self._lender = lender
        self._rings: dict[Link, device_copies.StagingRing] = {}
        self._readers: dict[Link, device_copies.CopyQueue] = {}
        self._unread: dict[Link, str] = {}  # the reason why a link has no dma-buf
        self.runs: list[scheduler.Run] = []
        self._pools: dict[int, BufferPool] = {}
        self._memory: dict[tuple[int, str], HostMemory] = {}
        self._imports: dict[tuple[int, str, int], ExternalBuffer] = {}
        self._reasons: dict[tuple[int, str], str] = {}  # the reason why an arena is not shared
        if lender:
            lender.lent += 1
            self.runs, self._pools, self._memory = lender.runs, lender._pools, lender._memory
            self._imports, self._reasons = lender._imports, lender._reasons

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all arenas of all chunks."""
        return sum(pool.size_bytes for pool in self._pools.values())

    def fill(self) -> TransferMemory:
        """Allocate all arenas now, for plans of other shapes to share; return self."""
        try:
            for chunk in self.plan.chunks:
                self.pool(chunk).fit(chunk.memory.arenas, "the upper bounds")
        except BaseException:
            self.close()
            raise
        return self

    def holds(self, plan: Plan) -> bool:
        """Tell whether a plan has the same chunks on the same devices, and fits this memory."""
        pairs = zip(self.plan.chunks, plan.chunks, strict=False)
        return len(self.plan.chunks) == len(plan.chunks) and all(
            here.device == there.device
            and all(
                size <= here.memory.arenas.get(arena, 0)
                for arena, size in there.memory.arenas.items()
                if kind_of(arena)
            )
            for here, there in pairs
        )

    def _link(self, move: Transfer) -> Link:
        chunks = self.plan.chunks
        return chunks[move.source or 0].device, chunks[move.target].device

    def _ends(self, link: Link) -> tuple[OpenDevice, OpenDevice]:
        return self._opened[link[0]], self._opened[link[1]]

    def _is_unseen(self, move: Transfer) -> bool:
        """Tell whether a value moves to memory of another device that the host cannot map."""
        slot = self.plan.chunks[move.target].input_slots[move.value]
        return len(set(self._link(move))) > 1 and slot.arena.startswith(ARRIVING)

    # -------------------------------------------------------------- before a program is made

    def pool(self, chunk: Chunk) -> BufferPool:
        """Return a chunk's pool, with outputs for other devices in shared memory if possible."""
        if chunk.number in self._pools:
            return self._pools[chunk.number]
        made = self._pools[chunk.number] = BufferPool(self._opened[chunk.device])
        for move in self.plan.transfers:
            if move.source == chunk.number and len(set(self._link(move))) > 1:
                slot = self.plan.chunks[chunk.number].output_slots[move.value]
                if slot.size_bytes and slot.arena not in made.buffers:
                    self._leave(self._link(move), chunk.number, slot.arena, made)
        return made

    def _leave(self, link: Link, number: int, arena: str, made: BufferPool) -> None:
        """Allocate a chunk's arena in memory that the reading device shares, if possible."""
        size = self.plan.chunks[number].memory.arenas[arena]
        source, target = self._ends(link)
        is_own = arena.startswith(LEAVING)
        refusal = (
            self._no_dma_buf(link) if is_own else device_copies.host_memory_refusal(source, target)
        )
        try:
            if not refusal and is_own:
                made.buffers[arena] = ExportedBuffer(source.device, size)
            elif not refusal:
                memory = HostMemory(size)
                made.buffers[arena] = ImportedBuffer(source.device, memory, size)
                self._memory[number, arena] = memory
        except device_copies.REFUSALS as error:  # `fit` makes an ordinary buffer, copied from
            refusal = str(error)
        self._reasons[number, arena] = refusal

    def _no_dma_buf(self, link: Link) -> str:
        if link not in self._unread:
            self._unread[link] = device_copies.dma_buf_refusal(*self._ends(link))
        return self._unread[link]

    def given(self, chunk: Chunk) -> dict[str, Given]:
        """Return buffer and offset of each input that the chunk reads where it was written."""
        shared: dict[str, Given] = {}
        for move in self.plan.transfers:
            if move.target == chunk.number and not self._is_unseen(move):
                given, self.paths[move] = self._given(move)
                if given:
                    shared[move.value] = given
        return shared

    def _given(self, move: Transfer) -> tuple[Given | None, TransferPath]:
        number, (source, target) = move.source or 0, self._link(move)
        writer, reader = self.plan.chunks[number], self.plan.chunks[move.target]
        info = self.plan.devices[target]
        slot = writer.output_slots[move.value]
        refusal = "" if slot.size_bytes else "it has no bytes"
        if writer.stored[move.value] != reader.stored[move.value]:
            refusal = (
                f"it is {writer.stored[move.value]} on {self.plan.devices[source].label}, "
                f"{reader.stored[move.value]} on {info.label}"
            )
        elif slot.offset_bytes % (info.limit(ALIGNMENT) or 1):
            refusal = f"{info.label} cannot bind a buffer at byte {slot.offset_bytes}"
        elif source == target and not refusal:
            buffer = self._pools[number].buffers[slot.arena]
            return (buffer, slot.offset_bytes), TransferPath(transfer_paths.SAME_MEMORY)
        memory = self._memory.get((number, slot.arena))
        if not refusal and memory:
            key = number, slot.arena, target
            try:
                if key not in self._imports:
                    device = self._opened[target].device
                    self._imports[key] = ImportedBuffer(device, memory, memory.size_bytes)
                return (self._imports[key], slot.offset_bytes), TransferPath(transfer_paths.SHARED)
            except device_copies.REFUSALS as error:
                refusal = str(error)
        refusal = refusal or self._reasons.get((number, slot.arena), "")
        return None, TransferPath(transfer_paths.HOST_COPY, refusal)

    # ------------------------------------------------------------- when all programs are made

    def moves(self) -> dict[Transfer, device_copies.Move]:
        """Return the function that moves each value into memory that the host cannot map."""
        return {move: self._move(move) for move in self.plan.transfers if self._is_unseen(move)}

    def _move(self, move: Transfer) -> device_copies.Move:
        number, link = move.source or 0, self._link(move)
        slot = self.plan.chunks[number].output_slots[move.value]
        goal = self.plan.chunks[move.target].input_slots[move.value]
        left = self._pools[number].buffers[slot.arena]
        here = self._pools[move.target].buffers[goal.arena], goal.offset_bytes
        refusal = self._no_dma_buf(link) or self._reasons.get((number, slot.arena), "")
        if isinstance(left, ExportedBuffer) and not refusal:
            key = number, slot.arena, link[1]
            try:
                if key not in self._imports:
                    self._imports[key] = OpenedBuffer(self._opened[link[1]].device, left)
                if link not in self._readers:
                    self._readers[link] = device_copies.CopyQueue(self._opened[link[1]])
                there = self._imports[key], slot.offset_bytes
                made = self._readers[link].add(there, here, slot.size_bytes)
                self.paths[move] = TransferPath(transfer_paths.DMA_BUF)
                return made
            except device_copies.REFUSALS as error:
                refusal = str(error)
        ring = self._ring(link)
        name = transfer_paths.RING_COPIED if ring.refusal else transfer_paths.RING
        reasons = [f"no dma-buf: {refusal}", ring.refusal and f"no shared slots: {ring.refusal}"]
        self.paths[move] = TransferPath(name, "; ".join(filter(None, reasons)))
        return ring.add((left, slot.offset_bytes), here, slot.size_bytes)

    def _ring(self, link: Link) -> device_copies.StagingRing:
        if link not in self._rings:
            sizes = [
                move.size_bytes
                for move in self.plan.transfers
                if self._link(move) == link and self._is_unseen(move)
            ]
            most = int(settings.get("STAGING_SLOT_BYTES"))
            if most < 1:
                raise PlanError(f"VKLAB_STAGING_SLOT_BYTES={most}: a slot needs at least one byte")
            size = min(most, max(sizes))
            self._rings[link] = device_copies.StagingRing(*self._ends(link), size)
        return self._rings[link]

    @property
    def _copiers(self) -> list[device_copies.StagingRing | device_copies.CopyQueue]:
        return [*self._rings.values(), *self._readers.values()]

    def require_idle(self) -> None:
        """Raise TimeoutError while a copy of an earlier run is in flight."""
        for copier in self._copiers:
            copier.require_idle()

    def close(self) -> None:
        """Free the memory, after its programs were closed; a stuck device keeps its resources."""
        for copier in self._copiers:
            copier.close()
        if self._lender:
            self._lender.lent -= 1
            if not self._lender.lent:
                self._lender.close()
            return
        stuck = [opened for opened in self._opened if opened.is_stuck]
        if stuck:
            stuck[0].forget(self)
            return
        while self._imports:
            self._imports.popitem()[1].close()
        while self._pools:
            self._pools.popitem()[1].close()
