"""A Plan made real on a device: arenas, weights, one recorded command buffer, mapped places.

Recorded once and replayed by every run. Visited by labs 06 and 12.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError
from vklab.plan import storage
from vklab.plan.chunks import Chunk, Copy
from vklab.plan.memory import Slot
from vklab.plan.plan import Plan
from vklab.runtime import kernels
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.weights import Weights
from vklab.types import Dispatch, TensorInfo
from vklab.vulkan import descriptors
from vklab.vulkan.api import VulkanObject
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.memory import Buffer
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence

__all__ = ["Program"]

Part = TypeVar("Part", bound=VulkanObject)
POLL_SECONDS = 1e-3
Places = tuple[tuple[str, np.ndarray], ...]
ARENA_KINDS = {"inputs": "upload", "outputs": "readback", "activations": "device"}


class Program:
    """One plan on one device, ready to run: copy in, submit, wait, copy out."""

    def __init__(
        self,
        opened: OpenDevice,
        plan: Plan,
        weights: Weights,
        progress: kernels.Progress | None = None,
    ) -> None:
        self.opened = opened
        self.plan = plan
        self._parts: list[VulkanObject] = []  # what close() closes, last made first
        self._pending: Submission | None = None  # submitted, and not known to be done
        self._pushes = descriptors.uses_push_descriptors(opened.device)
        try:
            self._kernels = opened.kernels.prepare(plan.dispatches, progress)
            self._buffers = dict(weights.buffers(plan))
            for arena, size in plan.memory.arenas.items():
                if arena not in self._buffers:
                    kind = ARENA_KINDS[arena.rstrip("0123456789")]
                    self._buffers[arena] = self._own(Buffer(opened.allocator, size, kind))
            self._pool = self._own(opened.command_pool())
            self._fence = self._own(Fence(opened.device))
            self._descriptor_pool: descriptors.DescriptorPool | None = None
            self.commands = self._own(CommandBuffer(self._pool))
            self.record(self.commands)
            self._submission = Submission(self.commands, self._fence)
            self.inputs, self.outputs = self._map_inputs(), self._map_outputs()
            self._finishers = self._find_finishers()
            infos = plan.graph.inputs
            self._encodes = any(plan.stored[info.name] != info.dtype for info in infos)
        except BaseException:
            self.close()
            raise
        self._is_ready = opened.device.command("vkGetFenceStatus")
        # Polling pays on a device of its own; on a CPU device it would steal the CPU it runs on.
        self._polls = not opened.info.is_cpu

    def _own(self, part: Part) -> Part:
        self._parts.append(part)
        return part

    def _view(self, slot: Slot, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if slot.size_bytes == 0:
            return np.zeros(shape, dtype)
        mapped = self._buffers[slot.arena].mapped
        assert mapped is not None, "inputs and outputs lie in host-visible memory"
        return np.frombuffer(mapped, np.uint8, slot.size_bytes, slot.offset_bytes).view(
            dtype
        ).reshape(shape)

    def _map(self, infos: Iterable[TensorInfo], slots: Mapping[str, Slot]) -> Places:
        stored = self.plan.stored
        return tuple((i.name, self._view(slots[i.name], stored[i.name], i.dims)) for i in infos)

    def _map_inputs(self) -> Places:
        return self._map(self.plan.graph.inputs, self.plan.input_slots)

    def _map_outputs(self) -> Places:
        infos = [self.plan.graph.infos[name] for name in self.plan.graph.outputs]
        return self._map(infos, self.plan.output_slots)

    def _find_finishers(self) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
        """Return what must happen to outputs that are stored otherwise than the model says."""
        finishers: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
        for name in self.plan.graph.outputs:
            steps: list[Callable[[np.ndarray], np.ndarray]] = []
            dtype = self.plan.graph.infos[name].dtype
            if self.plan.stored[name] != dtype:
                steps.append(functools.partial(storage.decode, dtype=dtype))
            if name in self.plan.trims:
                counts = [
                    (axis, self._view(self.plan.output_slots[count], "int32", (1,)))
                    for axis, count in self.plan.trims[name]
                ]
                steps.append(functools.partial(_trim, counts=counts))
            if steps:
                finishers[name] = functools.partial(_apply, steps=steps)
        return finishers

    # ------------------------------------------------------------------------------ recording

    def record(self, commands: CommandBuffer, queries: TimestampQueries | None = None) -> None:
        """Write all steps into a command buffer.

        With two `queries`, the whole lies between two timestamps; with more, every step stands
        alone between barriers and timestamps.
        """
        commands.begin()
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
        everywhere = ("compute_shader", "transfer")
        bound: kernels.Kernel | None = None
        for index, step in enumerate(chunk.steps):
            if queries:
                commands.barrier(everywhere, everywhere)
            elif index in barriers:
                commands.barrier(barriers[index].source, barriers[index].target)
            if isinstance(step, Copy):
                source, target = step.source, step.target
                commands.copy_buffer(
                    self._buffers[source.arena].handle, self._buffers[target.arena].handle,
                    source.size_bytes, source.offset_bytes, target.offset_bytes,
                )  # fmt: skip
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
            handle = self._buffers[slot.arena].handle
            number = kernel.reflection.bindings[name].number
            # A whole number of words, and never nothing: the driver takes neither.
            size = max(4, -(-slot.size_bytes // 4) * 4)
            bindings.append((number, handle, slot.offset_bytes, size))
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

    def run(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Run once on inputs of exactly the planned dtypes and shapes.

        Raises TimeoutError or DeviceLostError naming the work that was under way.
        """
        self._require_idle()
        if settings.get("DISABLE_REPLAY"):
            self._reset_descriptors()
            self.record(self.commands)
        return self._run(self._submission, arrays)

    def _run(self, submission: Submission, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        for (_, place), array in zip(self.inputs, arrays, strict=True):
            np.copyto(place, storage.encode(array, str(place.dtype)) if self._encodes else array)
        self.submit_and_wait(submission)
        outputs = {name: place.copy() for name, place in self.outputs}
        for name, finish in self._finishers.items():
            outputs[name] = finish(outputs[name])
        return outputs

    def submit_and_wait(self, submission: Submission) -> None:
        """Submit recorded work and wait for it: poll first, then block, never for ever."""
        try:
            submission.submit()
            self._pending = submission
            if self._polls and not settings.get("DISABLE_POLLING"):
                handle, fence = self.opened.device.handle, submission.fence.handle
                is_ready, deadline = self._is_ready, time.perf_counter() + POLL_SECONDS
                while time.perf_counter() < deadline:
                    if is_ready(handle, fence) != 1:  # VK_NOT_READY
                        break
            submission.fence.wait()
        except (DeviceLostError, TimeoutError) as error:
            self.opened.lost = self.opened.lost or isinstance(error, DeviceLostError)
            raise type(error)(
                error.command, error.result, f"{error.detail}; under way: {self._under_way()}"
            ) from error
        self._pending = None
        if self.opened.device.instance.validate:
            self.opened.device.instance.raise_messages()

    def _require_idle(self) -> None:
        """Go on after a time-out once its work is done; raise as long as it is not."""
        name = self.opened.info.name
        if self.opened.lost:
            detail = f"{name} was lost; close this session and load again"
            raise DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST", detail)
        if self._pending is not None and not self._pending.fence.is_signaled():
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

    def time_steps(
        self, repeats: int, arrays: Sequence[np.ndarray], whole: bool = False
    ) -> list[list[float]]:
        """Return, for each repeat, nanoseconds on the device's clock: of every step, or of all.

        With `whole`, the work is recorded as a run records it, and each repeat also gives the
        time on the host's clock, copies in and out included: [device, host].
        """
        self._require_idle()
        steps = sum(len(chunk.steps) for chunk in self.plan.chunks)
        # One timestamp more than two keeps a plan of one step in the step-by-step form.
        count = 2 if whole else max(steps + 1, 3)
        samples = []
        kept, self._descriptor_pool = self._descriptor_pool, None
        made = len(self._parts)
        try:
            queries = self._own(TimestampQueries(self.opened.device, count))
            fence = self._own(Fence(self.opened.device))
            commands = self._own(CommandBuffer(self._pool))
            self.record(commands, queries)
            submission = Submission(commands, fence)
            for _ in range(repeats):
                start = time.perf_counter_ns()
                self._run(submission, arrays)
                end = time.perf_counter_ns()
                stamps = queries.read_ns(2 if whole else steps + 1)
                spans = [b - a for a, b in zip(stamps, stamps[1:], strict=False)]
                samples.append([spans[0], float(end - start)] if whole else spans)
        finally:
            # What the device still works on stays until `close`.
            while self._pending is None and len(self._parts) > made:
                self._parts.pop().close()
            self._descriptor_pool = kept
        return samples

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
        self._pending = None
        self.inputs = self.outputs = ()
        self._finishers = {}
        while self._parts:
            self._parts.pop().close()


def _apply(
    array: np.ndarray, steps: Sequence[Callable[[np.ndarray], np.ndarray]]
) -> np.ndarray:
    for step in steps:
        array = step(array)
    return array


def _trim(array: np.ndarray, counts: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Cut an output to the sizes that the device has counted."""
    for axis, count in counts:
        array = array.take(range(int(count[0])), axis)
    return np.ascontiguousarray(array)
