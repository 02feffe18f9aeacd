"""Every class of vklab/vulkan: made, used, closed once and twice, with nothing left behind."""

from __future__ import annotations

import dataclasses

import pytest

from support.graphs.small_models import stock_variant
from vklab import settings
from vklab.errors import OutOfMemoryError, PlanError, SetupError, VulkanError
from vklab.shader import compiler
from vklab.vulkan import api, instance
from vklab.vulkan.command import CommandBuffer, CommandPool
from vklab.vulkan.descriptors import DescriptorPool, DescriptorSetLayout
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab.vulkan.memory import KINDS, Allocator, Buffer
from vklab.vulkan.pipeline import ComputePipeline, PipelineCache
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence


def make_pipeline(opened):
    shader = compiler.compile_variant(*stock_variant("softmax"))
    found = shader.reflection
    return ComputePipeline(
        opened.device,
        shader.spirv,
        [b.number for b in found.bindings.values()],
        found.push_bytes,
        [(found.constants["WORKGROUP"].id, "I", 64)],
        entry=found.entry,
    )


CLASSES = {
    "Fence": lambda o: Fence(o.device),
    "TimestampQueries": lambda o: TimestampQueries(o.device, 3),
    "CommandPool": lambda o: CommandPool(o.device, o.device.compute_queue),
    "transfer CommandPool": lambda o: o.command_pool(transfer=True),
    "DescriptorSetLayout": lambda o: DescriptorSetLayout(o.device, [0, 1, 5], push=False),
    "DescriptorPool": lambda o: DescriptorPool(o.device, 2, 6),
    "empty DescriptorPool": lambda o: DescriptorPool(o.device, 0, 0),
    "PipelineCache": lambda o: PipelineCache(o.device),
    "ComputePipeline": make_pipeline,
    **{f"{kind} Buffer": lambda o, kind=kind: Buffer(o.allocator, 1000, kind) for kind in KINDS},
}


@pytest.mark.parametrize("name", CLASSES)
def test_is_counted_and_destroyed_once(opened, name):
    before = api.live_handles()
    made = CLASSES[name](opened)
    assert api.live_handles().get(made.kind, 0) == before.get(made.kind, 0) + 1
    made.close()
    made.close()
    assert api.live_handles() == before


@pytest.mark.parametrize("name", CLASSES)
def test_is_closed_by_a_with_block_also_after_an_error(opened, name):
    before = api.live_handles()
    with pytest.raises(RuntimeError, match="inside"), CLASSES[name](opened):
        raise RuntimeError("inside")
    assert api.live_handles() == before


def test_command_buffers_are_freed_before_their_pool(opened):
    with opened.command_pool() as pool, CommandBuffer(pool) as commands:
        commands.begin()
        commands.end()
    assert "VkCommandBuffer" not in api.live_handles() or opened


def test_a_device_of_ones_own(device_index):
    before = api.live_handles()
    with Instance() as own:
        physical = own.physical_devices()[device_index]
        info = __import__("vklab").devices()[device_index]
        with Device(own, physical, info) as device:
            device.call("vkDeviceWaitIdle")
            with Buffer(Allocator(device), 64) as buffer:
                assert buffer.size_bytes == 64
        refused = dataclasses.replace(info, refusal="is too old")
        with pytest.raises(SetupError, match="cannot be used: is too old"):
            Device(own, physical, refused)
    assert api.live_handles() == before


def test_commands_that_do_not_exist(opened):
    for owner in (opened.device, opened.device.instance):
        with pytest.raises((VulkanError, api.ffi.error)):
            owner.command("vkNoSuchCommandEXT")


def test_layers_and_extensions_are_listed():
    assert all(name.startswith("VK_") for name in instance.layers())
    assert "VK_EXT_debug_utils" in instance.extensions() or instance.layers() == []


def test_a_missing_validation_layer_is_a_set_up_error(monkeypatch):
    before = api.live_handles()
    monkeypatch.setattr(instance, "layers", list)
    with pytest.raises(SetupError, match="validation layer .* is not installed") as caught:
        Instance(validate=True)
    assert "vulkan-validationlayers" in caught.value.repair
    assert api.live_handles() == before


# ------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize("size", [0, -1, 2**62])
def test_buffers_of_impossible_sizes(opened, size):
    largest = opened.info.limit("maxBufferSize") or 2**63
    with pytest.raises(PlanError, match=f"a buffer of {size} bytes.*takes 1 to {largest}"):
        Buffer(opened.allocator, size)


@pytest.mark.parametrize("kind", ["upload", "staging", "readback"])
def test_the_host_writes_and_reads_what_it_sees(opened, kind):
    with Buffer(opened.allocator, 1031, kind) as one, Buffer(opened.allocator, 7, kind) as other:
        assert one.mapped is not None and other.mapped is not None
        one.mapped[:] = bytes(i % 251 for i in range(1031))
        other.mapped[:] = b"1234567"
        assert bytes(one.mapped) == bytes(i % 251 for i in range(1031))
        assert bytes(other.mapped) == b"1234567"


def test_buffers_share_blocks_and_never_bytes(opened):
    before = opened.allocator.used_bytes
    buffers = [Buffer(opened.allocator, size, "staging") for size in (1, 300, 4096, 70000) * 8]
    for number, buffer in enumerate(buffers):
        assert buffer.mapped is not None
        buffer.mapped[:] = bytes([number]) * buffer.size_bytes
    for buffer in buffers[::2]:
        buffer.close()
    again = [Buffer(opened.allocator, 777, "staging") for _ in range(16)]
    for buffer in again:
        assert buffer.mapped is not None
        buffer.mapped[:] = b"\xff" * 777
    for number, buffer in list(enumerate(buffers))[1::2]:
        assert buffer.mapped is not None and set(bytes(buffer.mapped)) == {number}
    assert len({buffer.block for buffer in buffers[1::2] + again}) == 1
    for buffer in buffers + again:
        buffer.close()
    assert opened.allocator.used_bytes == before


def test_a_large_buffer_has_a_block_of_its_own_which_goes_back(opened):
    allocator = Allocator(opened.device)  # that of the device may have a block with enough room
    with Buffer(allocator, 40 << 20) as buffer:
        assert buffer.block is not None and buffer.block.ranges.size_bytes < 41 << 20
        assert allocator.reserved_bytes >= 40 << 20
    assert allocator.reserved_bytes == 0


def test_the_budget_is_kept_and_the_error_has_the_numbers(opened):
    before = api.live_handles()
    words = r"asked for 67108864 bytes on .*, \d+ are left under the limit .*_MEMORY_LIMIT=1e-09"
    allocator = Allocator(opened.device)
    with settings.settings(MEMORY_LIMIT=1e-9), pytest.raises(OutOfMemoryError, match=words):
        Buffer(allocator, 64 << 20)
    assert api.live_handles() == before
    Buffer(allocator, 64 << 20).close()


def test_a_driver_that_has_no_memory_left(opened, monkeypatch):
    before, allocator = api.live_handles(), Allocator(opened.device)
    command = opened.device.command

    def out_of_memory(name):
        return (lambda *a: -2) if name == "vkAllocateMemory" else command(name)

    monkeypatch.setattr(opened.device, "command", out_of_memory)
    with pytest.raises(OutOfMemoryError, match="vkAllocateMemory returned VK_ERROR_OUT_OF_DEVICE"):
        Buffer(allocator, 48 << 20)
    monkeypatch.undo()
    assert (api.live_handles(), allocator.used_bytes) == (before, 0)


@pytest.mark.parametrize("failing", ["vkMapMemory", "vkBindBufferMemory"])
def test_a_failure_half_way_frees_what_was_made(opened, monkeypatch, failing):
    before, allocator = api.live_handles(), Allocator(opened.device)  # has no block with room yet
    command = opened.device.command
    monkeypatch.setattr(
        opened.device, "command", lambda n: (lambda *a: -5) if n == failing else command(n)
    )
    with pytest.raises(VulkanError, match=f"{failing} returned VK_ERROR_MEMORY_MAP_FAILED"):
        Buffer(allocator, 48 << 20, "staging")
    monkeypatch.undo()
    assert (api.live_handles(), allocator.used_bytes, allocator.reserved_bytes) == (before, 0, 0)


@pytest.mark.parametrize("failing", [
    "vkCreatePipelineLayout", "vkCreateShaderModule", "vkCreateComputePipelines",
])  # fmt: skip
def test_a_pipeline_that_fails_half_way_leaves_nothing(opened, monkeypatch, failing):
    before = api.live_handles()
    command = opened.device.command
    monkeypatch.setattr(
        opened.device, "command", lambda n: (lambda *a: -3) if n == failing else command(n)
    )
    with pytest.raises(VulkanError, match=f"{failing} returned VK_ERROR_INITIALIZATION_FAILED"):
        make_pipeline(opened)
    monkeypatch.undo()
    assert api.live_handles() == before


# ---------------------------------------------------------------------------------- validation


def test_a_violation_is_collected_and_raised_once():
    if instance.VALIDATION_LAYER not in instance.layers():
        pytest.skip("the validation layer is not installed")
    import vklab
    from vklab.runtime import open_devices

    with settings.settings(VALIDATE=True):
        index = next(info.index for info in vklab.devices() if not info.refusal)
        opened = open_devices.open_device(index)
    # A buffer of no bytes; drivers make it without a word.
    handle = opened.device.create(
        "vkCreateBuffer", "VkBuffer", api.struct("VkBufferCreateInfo", usage=32)
    )
    opened.device.command("vkDestroyBuffer")(opened.device.handle, handle, api.ffi.NULL)
    messages = opened.device.instance.messages
    assert [m.severity for m in messages] == ["error"]
    assert "VkBufferCreateInfo-size" in messages[0].identifier
    with pytest.raises(VulkanError, match="VkBufferCreateInfo-size"):
        opened.device.instance.raise_messages()
    opened.device.instance.raise_messages()
