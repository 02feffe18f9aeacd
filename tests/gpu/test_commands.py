"""Commands on a queue: copies, barriers, waits that end, timestamps, clocks."""

from __future__ import annotations

import time

import numpy as np
import pytest

from vklab.errors import TimeoutError, VulkanError
from vklab.runtime import upload
from vklab.runtime.many import device_copies
from vklab.vulkan import query
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.memory import Buffer
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence


class Hidden(Buffer):
    """A buffer that the host cannot see, as on a discrete GPU."""

    mapped = None


def run(opened, record):
    """Record commands, submit them and wait."""
    with opened.command_pool() as pool, CommandBuffer(pool) as commands, Fence(opened.device) as f:
        commands.begin()
        record(commands)
        commands.end()
        Submission(commands, f).submit()
        f.wait()


def fill(commands, buffer, word):
    """Record a fill of a whole buffer with a 32-bit word."""
    command = commands.device.command("vkCmdFillBuffer")
    command(commands.handle, buffer.handle, 0, buffer.size_bytes, word)


def test_fill_and_copy(opened):
    with (
        Buffer(opened.allocator, 64, "device") as source,
        Buffer(opened.allocator, 64, "readback") as target,
    ):

        def record(commands):
            fill(commands, source, 0x01020304)
            fill(commands, target, 0)
            commands.barrier(("transfer",), ("transfer",))
            commands.copy_buffer(source.handle, target.handle, 8, 4, 16)
            commands.barrier(("transfer",), ("host",))

        run(opened, record)
        assert target.mapped is not None
        assert bytes(target.mapped) == bytes(16) + b"\4\3\2\1" * 2 + bytes(40)


@pytest.mark.parametrize("visible", [True, False])
@pytest.mark.parametrize("offset", [0, 12])
def test_upload_and_download(opened, visible, offset, monkeypatch):
    # Pieces of 1000 bytes: the last one is smaller.
    monkeypatch.setattr(upload, "STAGING_BYTES", 1000)
    data = np.random.default_rng(0).integers(0, 256, (3, 1037), np.uint8)
    with (Buffer if visible else Hidden)(opened.allocator, 8192) as buffer:
        upload.upload(opened, buffer, [(offset, data), (offset + 4000, data[:1, ::-1])])
        assert device_copies.download(opened, buffer, offset, data.size) == data.tobytes()
        back = device_copies.download(opened, buffer, offset + 4000, 1037)
        assert back == data[0, ::-1].tobytes()
        assert device_copies.download(opened, buffer, offset, 0) == b""
        apart = data[:, 37:]  # rows without their heads; the pieces are whole rows
        upload.upload(opened, buffer, [(offset, apart)])
        assert device_copies.download(opened, buffer, offset, 3000) == apart.tobytes()


@pytest.mark.parametrize("array", [
    np.arange(6.0).reshape(2, 3).T, np.float32(3), np.zeros((0, 3)), np.array([True, False]),
    np.arange(10)[::-2], np.arange(12, dtype=np.uint16).reshape(3, 4)[:, 1:],
    np.arange(24.0).reshape(2, 3, 4)[:, :, 1:], np.zeros((3, 5))[:, 5:],
], ids=["transposed", "scalar", "empty", "bool", "backwards", "rows", "planes",
        "no columns"])  # fmt: skip
@pytest.mark.parametrize("most", [16, 1 << 20])
def test_arrays_of_any_layout_become_row_major_bytes(array, most, monkeypatch):
    monkeypatch.setattr(upload, "STAGING_BYTES", most)
    array = np.asarray(array)
    assert bytes(upload.array_bytes(array)) == array.tobytes()
    found = sorted(upload.pieces([(0, array)]), key=lambda piece: piece[0])
    assert b"".join(bytes(upload.array_bytes(piece)) for _, piece in found) == array.tobytes()


def test_a_staging_area_that_cannot_be_had_leaves_nothing(opened, monkeypatch):
    monkeypatch.setenv("VKLAB_MEMORY_LIMIT", "0.5")
    with Hidden(opened.allocator, 64) as buffer:
        monkeypatch.setattr(upload, "STAGING_BYTES", 1 << 62)
        with pytest.raises(Exception, match="a buffer of"):
            upload.upload(opened, buffer, iter([(0, np.zeros(4, np.float32))]))


def test_a_recording_may_be_submitted_again_and_made_again(opened):
    with (
        Buffer(opened.allocator, 4, "readback") as buffer,
        opened.command_pool() as pool,
        CommandBuffer(pool) as commands,
        Fence(opened.device) as fence,
    ):
        submission = Submission(commands, fence)
        for word in (1, 2, 3):
            commands.begin()
            fill(commands, buffer, word)
            commands.barrier(("transfer",), ("host",))
            commands.end()
            for _ in range(2):
                submission.submit()
                fence.wait()
                assert fence.is_signaled()
                assert buffer.mapped is not None and buffer.mapped[0] == word


# -------------------------------------------------------------------------------------- waiting


def test_a_fence_that_nobody_signals(opened):
    with Fence(opened.device) as fence:
        assert not fence.is_signaled()
        start = time.monotonic()
        with pytest.raises(TimeoutError, match=r"did not finish within 0\.05 s"):
            fence.wait(0.05)
        assert time.monotonic() - start > 0.04


def test_the_limit_of_waits_is_a_switch(opened, monkeypatch):
    monkeypatch.setenv("VKLAB_TIMEOUT", "0.01")
    with Fence(opened.device) as fence, pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        fence.wait()


# --------------------------------------------------------------------------------------- clocks


def test_timestamps_follow_each_other(opened):
    if not opened.device.compute_queue.family.timestamp_valid_bits:
        pytest.skip("the compute queue has no timestamps")
    with (
        TimestampQueries(opened.device, 4) as queries,
        Buffer(opened.allocator, 1 << 20) as buffer,
    ):

        def record(commands):
            commands.reset_queries(queries)
            for number in range(4):
                commands.write_timestamp(queries, number)
                fill(commands, buffer, number)
                commands.barrier(("transfer",), ("transfer",))

        run(opened, record)
        times_ns = queries.nanoseconds(queries.ticks())
        assert times_ns[0] == 0 and times_ns == sorted(times_ns)
        assert 0 < times_ns[3] < 10e9


def test_timestamps_that_were_never_written_are_an_error(opened):
    with TimestampQueries(opened.device, 2) as queries:
        run(opened, lambda commands: commands.reset_queries(queries))
        with pytest.raises(VulkanError, match="VK_NOT_READY"):
            queries.ticks()


def test_the_clocks_of_device_and_host_are_tied(opened):
    before_ns = time.monotonic_ns()
    found = query.calibrate(opened.device)
    after_ns = time.monotonic_ns()
    if found is None:
        assert "VK_EXT_calibrated_timestamps" not in opened.device.extensions
        pytest.skip("the driver has no VK_EXT_calibrated_timestamps")
    _, host_ns, deviation_ns = found
    assert before_ns <= host_ns <= after_ns and deviation_ns < 10**9
    later = query.calibrate(opened.device)
    assert later is not None and later[0] > found[0] and later[1] > found[1]
