"""Program: a chunk on a device, as one command buffer with pipelines and buffers bound.

The command buffer is recorded once and replayed by every run. Visited by labs 06 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError
from vklab.plan.barriers import Copy
from vklab.plan.chunk import Chunk
from vklab.plan.memory import Slot
from vklab.runtime import kernels
from vklab.runtime.buffers import BufferPool
from vklab.runtime.device_state import DeviceState
from vklab.runtime.io_binding import Given, IOBinding
from vklab.runtime.open_devices import Closable
from vklab.types import Dispatch
from vklab.vulkan import descriptors
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.sync import Fence

if TYPE_CHECKING:
    from vklab.vulkan.query import TimestampQueries

EVERYWHERE = ("compute_shader", "transfer")
Part = TypeVar("Part", bound=Closable)


class Program:
    """One chunk on one device, ready to run: copy in, submit, wait, copy out.

    Attributes:
        chunk: the chunk.
        opened: the device.
        binding: inputs and outputs as arrays; `prepare` may replace it.
        polls: True if `wait` polls before it blocks.

    Args:
        state: the device, with its weights and kernels.
        chunk: the chunk, lowered for this device.
        pool: buffers shared with programs of other shapes; None for a pool of its own.
        progress: called as (done, of, kernel) while kernels compile.
        copied_in: names of the inputs that the host copies in; None for all.
        copied_out: names of the outputs that the host copies out, in order; None for all.
        given: buffer and offset of each input that another program wrote and that is read in place.
        commands: the class of the command buffer.
    """

    def __init__(
        self, state: DeviceState, chunk: Chunk, pool: BufferPool | None = None,
        progress: kernels.Progress | None = None, copied_in: Sequence[str] | None = None,
        copied_out: Sequence[str] | None = None, given: Mapping[str, Given] | None = None,
        commands: type[CommandBuffer] = CommandBuffer,
    ) -> None:  # fmt: skip
        self.chunk = chunk
        self.opened = opened = state.opened
        # Polling shortens waits for a GPU; with a CPU device it would take the device's cores.
        self.polls = not opened.info.is_cpu
        self.copied_in = [i.name for i in chunk.graph.inputs] if copied_in is None else copied_in
        self.copied_out = chunk.graph.outputs if copied_out is None else copied_out
        self._given = given or {}
        self._parts: list[Closable] = []  # owned objects, which close() closes in reverse order
        self._pending: Submission | None = None  # submitted, and not known to be complete
        self._pushes = descriptors.uses_push_descriptors(opened.device)
        self._pool = pool or self.own(BufferPool(opened))
        try:
            self._kernels = opened.kernels.prepare(chunk.dispatches, progress, state.kernels)
            self._weights = self.own(state.weights.lease(chunk)).buffers
            self._pool.fit(chunk.memory.arenas, ", ".join(map(str, chunk.graph.inputs)))
            self.command_pool = self.own(opened.command_pool())
            self._fence = self.own(Fence(opened.device))
            self._descriptor_pool: descriptors.DescriptorPool | None = None
            self.commands = self.own(commands(self.command_pool))
            self._submission = self.commands.submission(self._fence)
            self._record_and_map()
        except BaseException:
            self.close()
            raise

    def own(self, part: Part) -> Part:
        """Add an object that `close` closes with the program, and return the object."""
        self._parts.append(part)
        return part

    def disown(self, first: Closable) -> None:
        """Close an owned object and those owned after it, last first; do nothing during a run."""
        while self._pending is None and first in self._parts:
            self._parts.pop().close()

    def _record_and_map(self) -> None:
        """Record the command buffer for the pool's present buffers, and map inputs and outputs."""
        self._buffers = dict(self._pool.buffers)
        self._reset_descriptors()
        self.record(self.commands)
        self.binding = IOBinding(
            self.chunk, self._buffers, self._given, self.copied_in, self.copied_out
        )
        self._version = self._pool.version

    def _buffer_at(self, slot: Slot) -> tuple[Any, int]:
        """Return the handle of a slot's buffer and the slot's byte offset in the buffer."""
        for name, (given, start) in self._given.items():
            whole = self.chunk.input_slots[name]
            if whole.overlaps(slot):
                return given.handle, start + slot.offset_bytes - whole.offset_bytes
        weight = self._weights.get(slot.arena)
        buffer, start = weight or (self._buffers[slot.arena], 0)
        return buffer.handle, start + slot.offset_bytes

    # ------------------------------------------------------------------------------ recording

    def record(self, commands: CommandBuffer, queries: TimestampQueries | None = None) -> None:
        """Record all steps into a command buffer.

        Two `queries` write one timestamp before and one after all steps. With more, a full barrier
        precedes each step, in place of the planned ones, and a timestamp follows it.
        """
        commands.begin()
        if self._given:  # the program that writes these inputs may still run on this queue
            commands.barrier(EVERYWHERE, EVERYWHERE)
        if queries:
            commands.reset_queries(queries)
            commands.write_timestamp(queries, 0)
        self._record_steps(commands, queries if queries and queries.count > 2 else None)
        if queries and queries.count == 2:
            commands.write_timestamp(queries, 1)
        commands.end()

    def _record_steps(self, commands: CommandBuffer, queries: TimestampQueries | None) -> None:
        barriers = {barrier.before: barrier for barrier in self.chunk.barriers}
        bound: kernels.Kernel | None = None
        for number, step in enumerate(self.chunk.steps):
            if queries:
                commands.barrier(EVERYWHERE, EVERYWHERE)
            elif number in barriers:
                commands.barrier(barriers[number].source, barriers[number].target)
            if isinstance(step, Copy):
                source, source_offset = self._buffer_at(step.source)
                target, target_offset = self._buffer_at(step.target)
                size = min(step.source.size_bytes, step.target.size_bytes)
                commands.copy_buffer(source, target, size, source_offset, target_offset)
            else:
                bound = self._record_dispatch(commands, step, bound)
            if queries:
                commands.write_timestamp(queries, number + 1)
        last = barriers.get(len(self.chunk.steps))
        if last:
            commands.barrier(last.source, last.target)

    def _record_dispatch(
        self, commands: CommandBuffer, dispatch: Dispatch, bound: kernels.Kernel | None
    ) -> kernels.Kernel:
        kernel = self._kernels[kernels.key(dispatch)]
        if kernel is not bound:
            commands.bind_pipeline(kernel.pipeline)
        bindings = []
        for name, info in dispatch.reads + dispatch.writes:
            slot = self.chunk.memory.slots[info.name]
            handle, offset = self._buffer_at(slot)
            number = kernel.reflection.bindings[name].number
            # Round up to whole words, at least one: shaders read words, and Vulkan forbids size 0.
            # The next slot begins at a multiple of 16 bytes, so the range stays in the buffer.
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
            dispatches = self.chunk.dispatches
            total = sum(len(d.reads) + len(d.writes) for d in dispatches)
            pool = descriptors.DescriptorPool(self.opened.device, len(dispatches), total)
            self._descriptor_pool = self.own(pool)
        return self._descriptor_pool

    def _reset_descriptors(self) -> None:
        if self._descriptor_pool is not None:
            self.commands.settle()
            self._parts.remove(self._descriptor_pool)
            self._descriptor_pool.close()
            self._descriptor_pool = None

    def swap_descriptors(
        self, pool: descriptors.DescriptorPool | None
    ) -> descriptors.DescriptorPool | None:
        """Replace the descriptor pool of the next recording, and return the former pool."""
        before, self._descriptor_pool = self._descriptor_pool, pool
        return before

    # -------------------------------------------------------------------------------- running

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run once: copy in, submit, wait, copy out.

        Args:
            values: arrays by name; must contain all inputs.

        Returns the outputs by name, in order. Raises TimeoutError or DeviceLostError, naming the
        steps that were submitted.
        """
        self.prepare()
        self.binding.copy_in(values)
        self.submit()
        self.wait()
        return self.binding.copy_out()

    def start(self, values: Mapping[str, Any]) -> None:
        """Begin a run without waiting: prepare, copy in, submit."""
        self.prepare()
        self.begin(values)

    def begin(self, values: Mapping[str, Any]) -> None:
        """Copy in and submit; `prepare` must have been called before."""
        self.binding.copy_in(values)
        self.submit()

    def finish(self) -> dict[str, Any]:
        """Wait for a started run, and return its outputs by name."""
        self.wait()
        return self.copy_out()

    def copy_out(self) -> dict[str, Any]:
        """Return copies of the outputs of a complete run, by name."""
        return self.binding.copy_out()

    def prepare(self) -> None:
        """Record again if the pool's buffers changed; raise while an earlier run is in flight.

        Programs that share a pool write the same buffers. The program that ran last must be idle
        before this one starts; after a time-out it may still run.
        """
        pool = self._pool
        is_ready = pool.last is self and self._version == pool.version and self._pending is None
        if not is_ready or self.opened.lost:
            (pool.last or self).require_idle()
            self.require_idle()
            if self._version != pool.version:
                self._record_and_map()
            pool.last = self
        if settings.get("DISABLE_REPLAY"):
            self._reset_descriptors()
            self.record(self.commands)

    def submit(self, submission: Submission | None = None) -> None:
        """Submit the program's recording to the queue, or another recording of the same chunk."""
        submission = submission or self._submission
        try:
            submission.submit()
        except (DeviceLostError, TimeoutError) as error:
            raise self._named(error) from error
        self._pending = submission

    def is_done(self) -> bool:
        """Tell without waiting whether the last submission is complete."""
        return self._pending is None or self._pending.fence.is_signaled()

    def wait(self) -> None:
        """Wait for the last submission: poll first, then block, at most TIMEOUT seconds.

        Raises TimeoutError or DeviceLostError naming the steps that were submitted.
        """
        assert self._pending is not None, "work is submitted before it is waited for"
        try:
            self._pending.wait(self.polls)
        except (DeviceLostError, TimeoutError) as error:
            raise self._named(error) from error
        self._pending = None
        if self.opened.device.instance.validate:
            self.opened.device.instance.raise_messages()

    def _named(self, error: DeviceLostError | TimeoutError) -> DeviceLostError | TimeoutError:
        """Return the error with the chunk and the steps that were submitted."""
        self.opened.lost = self.opened.lost or isinstance(error, DeviceLostError)
        detail = f"{error.detail}; under way: {self._under_way()}"
        return type(error)(error.command, error.result, detail)

    def require_idle(self) -> None:
        """Accept new work after a time-out once the earlier work is complete; raise until then."""
        name = self.opened.info.name
        if self.opened.lost:
            detail = f"{name} was lost; close this session and load again"
            raise DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST", detail)
        if not self.is_done():
            detail = f"{name} still works on an earlier run: {self._under_way()}"
            raise TimeoutError("vkQueueSubmit", "VK_TIMEOUT", detail)
        self._pending = None

    def settle(self) -> None:
        """Do as `require_idle`, and wait until the commands no longer use their buffers."""
        self.require_idle()
        self.commands.settle()

    def _under_way(self) -> str:
        chunk = self.chunk
        if not chunk.steps:
            return "an empty plan"
        first, last = (f"node {chunk.nodes[i]!r} ({chunk.steps[i]})" for i in (0, -1))
        return f"{chunk}, from {first} to {last}"

    def close(self) -> None:
        """Free all resources but shared weights. After a time-out, wait for the device again."""
        # A program that could not be made has no binding, and has submitted nothing.
        if self._parts and hasattr(self, "binding") and not self.opened.lost:
            try:
                if self._pending is not None:
                    self._pending.fence.wait()
                self.commands.settle()
            except DeviceLostError:
                self.opened.lost = True  # a lost device runs nothing: resources may be freed
            except TimeoutError:
                # Freeing resources in use may crash the driver: leave them allocated.
                self.opened.is_stuck = True
                self._parts.clear()
        self._pending = None
        if self._pool.last is self:
            self._pool.last = None
        while self._parts:
            self._parts.pop().close()
