"""A Plan made real on a device: one recorded command buffer, and mapped places around it.

Recorded once and replayed by every run. Visited by labs 06 and 12.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError
from vklab.plan.barriers import Chunk, Copy
from vklab.plan.memory import Slot
from vklab.plan.plan import Plan
from vklab.runtime import kernels
from vklab.runtime.buffers import BufferPool
from vklab.runtime.io_binding import Given, IOBinding
from vklab.runtime.observe import timestamps
from vklab.runtime.open_devices import Closable, OpenDevice
from vklab.runtime.weights import SessionWeights
from vklab.types import Dispatch
from vklab.vulkan import descriptors
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence

__all__ = ["Program"]

POLL_SECONDS = 1e-3
EVERYWHERE = ("compute_shader", "transfer")
Part = TypeVar("Part", bound=Closable)


class Program:
    """One plan on one device, ready to run: copy in, submit, wait, copy out.

    Attributes:
        polls: a wait polls before it blocks.

    Args:
        shared: memory that it shares with programs of other shapes; without it, it has its own.
        known: kernels that these programs have in common; it takes up new ones.
        given: inputs that lie elsewhere, where another program leaves them.
    """

    def __init__(
        self,
        opened: OpenDevice,
        plan: Plan,
        weights: SessionWeights,
        progress: kernels.Progress | None = None,
        shared: BufferPool | None = None,
        known: dict[tuple[object, ...], kernels.Kernel] | None = None,
        given: Mapping[str, Given] | None = None,
    ) -> None:
        self.opened = opened
        self.plan = plan
        self._parts: list[Closable] = []  # what close() closes, last made first
        self._pending: Submission | None = None  # submitted, and not known to be done
        self._pushes = descriptors.uses_push_descriptors(opened.device)
        self._reserve = shared or self._own(BufferPool(opened))
        self._given = given or {}
        self._places: IOBinding | None = None  # none before and after its life
        try:
            self._kernels = opened.kernels.prepare(plan.dispatches, progress, known)
            self._weights = self._own(weights.lease(plan)).places
            self._reserve.fit(plan.memory.arenas, ", ".join(map(str, plan.graph.inputs)))
            self._pool = self._own(opened.command_pool())
            self._fence = self._own(Fence(opened.device))
            self._descriptor_pool: descriptors.DescriptorPool | None = None
            self.commands = self._own(CommandBuffer(self._pool))
            self._submission = Submission(self.commands, self._fence)
            self._settle()
        except BaseException:
            self.close()
            raise
        self._is_ready = opened.device.command("vkGetFenceStatus")
        # Polling pays on a device of its own; on a CPU device it would steal the CPU it runs on.
        self.polls = not opened.info.is_cpu

    def _own(self, part: Part) -> Part:
        self._parts.append(part)
        return part

    def _settle(self) -> None:
        """Record for the buffers that there are now, and map inputs and outputs in them."""
        self._buffers = dict(self._reserve.buffers)
        self._reset_descriptors()
        self.record(self.commands)
        self._places = IOBinding(self.plan, self._buffers, self._given)
        self._version = self._reserve.version

    def place(self, slot: Slot) -> tuple[Any, int]:
        """Return the buffer's handle and the byte in it at which a slot begins."""
        for name, (given, start) in self._given.items():
            whole = self.plan.input_slots[name]
            if whole.overlaps(slot):
                return given.handle, start + slot.offset_bytes - whole.offset_bytes
        weight = self._weights.get(slot.arena)
        buffer, start = weight or (self._buffers[slot.arena], 0)
        return buffer.handle, start + slot.offset_bytes

    # ------------------------------------------------------------------------------ recording

    def record(self, commands: CommandBuffer, queries: TimestampQueries | None = None) -> None:
        """Write all steps into a command buffer.

        With two `queries`, the whole lies between two timestamps; with more, every step stands
        alone between barriers and timestamps.
        """
        commands.begin()
        if self._given:  # this queue may still work on what another program was submitted for
            commands.barrier(EVERYWHERE, EVERYWHERE)
        if queries:
            commands.reset_queries(queries)
            commands.write_timestamp(queries, 0)
        each = queries if queries and queries.count > 2 else None
        number = 0
        for chunk in self.plan.chunks:
            number = self._record_chunk(commands, chunk, each, number)
        if queries and not each:
            commands.write_timestamp(queries, 1)
        commands.end()

    def _record_chunk(
        self,
        commands: CommandBuffer,
        chunk: Chunk,
        queries: TimestampQueries | None,
        number: int,
    ) -> int:
        barriers = {barrier.before: barrier for barrier in chunk.barriers}
        bound: kernels.Kernel | None = None
        for index, step in enumerate(chunk.steps):
            if queries:
                commands.barrier(EVERYWHERE, EVERYWHERE)
            elif index in barriers:
                commands.barrier(barriers[index].source, barriers[index].target)
            if isinstance(step, Copy):
                (source, start), (target, end) = self.place(step.source), self.place(step.target)
                commands.copy_buffer(source, target, step.source.size_bytes, start, end)
            else:
                bound = self._record_dispatch(commands, step, bound)
            number += 1
            if queries:
                commands.write_timestamp(queries, number)
        last = barriers.get(len(chunk.steps))
        if last:
            commands.barrier(last.source, last.target)
        return number

    def _record_dispatch(
        self, commands: CommandBuffer, dispatch: Dispatch, bound: kernels.Kernel | None
    ) -> kernels.Kernel:
        kernel = self._kernels[kernels.key(dispatch)]
        if kernel is not bound:
            commands.bind_pipeline(kernel.pipeline)
        bindings = []
        for name, info in dispatch.reads + dispatch.writes:
            slot = self.plan.memory.slots[info.name]
            handle, offset = self.place(slot)
            number = kernel.reflection.bindings[name].number
            # A whole number of words, and never nothing: the driver takes neither.
            size = max(4, -(-slot.size_bytes // 4) * 4)
            bindings.append((number, handle, offset, size))
        if self._pushes:
            commands.push_descriptors(kernel.pipeline, bindings)
        else:
            descriptor_set = self._descriptors().allocate(kernel.pipeline.set_layout, bindings)
            commands.bind_descriptor_set(kernel.pipeline, descriptor_set)
        commands.push_constants(kernel.pipeline, kernels.pack_push(kernel.reflection, dispatch))
        commands.dispatch(*dispatch.workgroups)
        return kernel

    def _descriptors(self) -> descriptors.DescriptorPool:
        if self._descriptor_pool is None:
            count = len(self.plan.dispatches)
            total = sum(len(d.reads) + len(d.writes) for d in self.plan.dispatches)
            pool = descriptors.DescriptorPool(self.opened.device, count, total)
            self._descriptor_pool = self._own(pool)
        return self._descriptor_pool

    # -------------------------------------------------------------------------------- running

    @property
    def places(self) -> IOBinding:
        """Return where inputs and outputs lie; `prepare` may change it."""
        assert self._places is not None, "a closed program does not run"
        return self._places

    def prepare(self) -> None:
        """Get ready to be written to and submitted; raise while an earlier run is under way."""
        self._enter()
        if settings.get("DISABLE_REPLAY"):
            self._reset_descriptors()
            self.record(self.commands)

    def submit(self, submission: Submission | None = None) -> None:
        """Hand the work to the queue: the recorded one, or another recording of it."""
        submission = submission or self._submission
        try:
            submission.submit()
        except DeviceLostError as error:
            raise self._named(error) from error
        self._pending = submission

    def is_done(self) -> bool:
        """Tell whether what was submitted is complete, without waiting."""
        return self._pending is None or self._pending.fence.is_signaled()

    def wait(self) -> None:
        """Wait for what was submitted: poll first, then block, never for ever.

        Raises TimeoutError or DeviceLostError naming the work that was under way.
        """
        assert self._pending is not None, "work is submitted before it is waited for"
        fence = self._pending.fence
        try:
            if self.polls and not settings.get("DISABLE_POLLING"):
                device, handle = self.opened.device.handle, fence.handle
                is_ready, deadline = self._is_ready, time.perf_counter() + POLL_SECONDS
                while time.perf_counter() < deadline:
                    if is_ready(device, handle) != 1:  # VK_NOT_READY
                        break
            fence.wait()
        except (DeviceLostError, TimeoutError) as error:
            raise self._named(error) from error
        self._pending = None
        if self.opened.device.instance.validate:
            self.opened.device.instance.raise_messages()

    def _named(self, error: DeviceLostError | TimeoutError) -> DeviceLostError | TimeoutError:
        """Return the error with the work that was under way."""
        self.opened.lost = self.opened.lost or isinstance(error, DeviceLostError)
        detail = f"{error.detail}; under way: {self._under_way()}"
        return type(error)(error.command, error.result, detail)

    def _enter(self) -> None:
        """Take the memory over from who ran in it last."""
        reserve = self._reserve
        (reserve.last or self).require_idle()
        self.require_idle()
        if self._version != reserve.version:
            self._settle()
        reserve.last = self

    def require_idle(self) -> None:
        """Go on after a time-out once its work is done; raise as long as it is not."""
        name = self.opened.info.name
        if self.opened.lost:
            detail = f"{name} was lost; close this session and load again"
            raise DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST", detail)
        if not self.is_done():
            detail = f"{name} still works on an earlier run: {self._under_way()}"
            raise TimeoutError("vkQueueSubmit", "VK_TIMEOUT", detail)
        self._pending = None

    def _under_way(self) -> str:
        if not self.plan.chunks:
            return "an empty plan"
        chunk = self.plan.chunks[-1]
        first, last = (f"node {chunk.nodes[i]!r} ({chunk.steps[i]})" for i in (0, -1))
        return f"{chunk}, from {first} to {last}"

    def _reset_descriptors(self) -> None:
        if self._descriptor_pool is not None:
            self._parts.remove(self._descriptor_pool)
            self._descriptor_pool.close()
            self._descriptor_pool = None

    @contextlib.contextmanager
    def timed(self, whole: bool = False) -> Iterator[timestamps.Timed]:
        """Record the work once more, with timestamps around every step or around the whole.

        What stands alone for its timestamps takes longer than in a run.
        """
        self._enter()
        kept, self._descriptor_pool = self._descriptor_pool, None
        made = len(self._parts)
        try:
            steps = 1 if whole else sum(len(chunk.steps) for chunk in self.plan.chunks)
            work = self._own(timestamps.Timed(self._pool, steps, whole))
            self.record(work.commands, work.queries)
            yield work
        finally:
            # What the device still works on stays until `close`.
            while self._pending is None and len(self._parts) > made:
                self._parts.pop().close()
            self._descriptor_pool = kept

    def close(self) -> None:
        """Free everything but the weights. After a time-out, waits for the device once more."""
        if self._pending is not None and self._parts and not self.opened.lost:
            try:
                self._pending.fence.wait()
            except DeviceLostError:
                self.opened.lost = True  # nothing runs any more: all may go
            except TimeoutError:
                # Freeing what a device still works on would crash it: leave it to the driver.
                self.opened.is_stuck = True
                self._parts.clear()
        self._pending = self._places = None
        if self._reserve.last is self:
            self._reserve.last = None
        while self._parts:
            self._parts.pop().close()
