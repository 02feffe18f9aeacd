"""Measure how fast bytes move between the host and one device, by path and by size.

Lab 03 measures the student's device with it. As a program it prints a record as JSON, for
`data/recorded/`: `PYTHONPATH=. python3 -P labs/lib/shared/copies.py > record.json`. It needs the
packages vulkan and numpy only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vklab.types import DeviceInfo
from vklab.vulkan import physical_device
from vklab.vulkan.command import CommandBuffer, CommandPool, Submission
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab.vulkan.memory import DEVICE_LOCAL, Allocator, Buffer
from vklab.vulkan.sync import Fence

__all__ = ["PATHS", "measure", "record", "tables"]

KIB, MIB = 1 << 10, 1 << 20
SIZES = tuple(4 * KIB * 4**power for power in range(9))  # 4 KiB to 256 MiB
READ_AT_MOST = 4 * MIB  # reading memory that no cache of the host covers is slow
PATHS = {
    "staging": "write a staging buffer, then copy it on the device",
    "mapped": "write device-local memory through its mapping",
    "readback": "copy on the device into host memory, then read that",
    "mapped read": "read device-local memory through its mapping",
    "host": "copy from one array of the host to another",
}


def measure(index: int = 0, sizes: Sequence[int] = SIZES, repeats: int = 9) -> dict[str, Any]:
    """Return the bytes a second of each path and size, {path: {size: bytes a second}}.

    Each number is the median of some repetitions after one that is not counted. A path is left out
    where the device has no memory for it: "mapped" needs a type that is device-local and
    host-visible. Every copied byte is compared once.

    Args:
        index: number of the device, as in `vklab.devices()`.
        sizes: bytes to move.
        repeats: counted repetitions.
    """
    with Instance() as instance:
        handle = instance.physical_devices()[index]
        with Device(instance, handle, physical_device.describe(instance, handle, index)) as device:
            speeds: dict[str, Any] = {path: {} for path in PATHS}
            _warm_up(device)
            for size in sizes:
                for path, seconds in _medians(device, size, repeats).items():
                    speeds[path][str(size)] = size / seconds
    return {path: by_size for path, by_size in speeds.items() if by_size}


def _warm_up(device: Device) -> None:
    """Copy for a quarter of a second, because an idle device lowers its clocks."""
    end = time.perf_counter() + 0.25
    while time.perf_counter() < end:
        _medians(device, MIB, 3)


def _medians(device: Device, size: int, repeats: int) -> dict[str, float]:
    source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    target = np.empty_like(source)
    allocator = Allocator(device)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context
        buffers = {
            kind: own(Buffer(allocator, size, kind))
            for kind in ("device", "upload", "staging", "readback")
        }
        bytes_of = {
            kind: np.frombuffer(buffer.mapped, np.uint8)
            for kind, buffer in buffers.items()
            if buffer.mapped is not None
        }
        fence, pool = own(Fence(device)), own(CommandPool(device, device.transfer_queue))

        def copying(first: str, second: str) -> Callable[[], None]:
            commands = own(CommandBuffer(pool))
            commands.begin()
            commands.barrier(("host",), ("transfer",))
            commands.copy_buffer(buffers[first].handle, buffers[second].handle, size)
            commands.barrier(("transfer",), ("host", "transfer"))
            commands.end()
            submission = Submission(commands, fence)

            def run() -> None:
                submission.submit()
                submission.wait(polls=True)

            return run

        up, down = copying("staging", "device"), copying("device", "readback")

        def staging() -> None:
            bytes_of["staging"][:] = source
            up()

        def readback() -> None:
            down()
            target[:] = bytes_of["readback"]

        def mapped() -> None:
            bytes_of["upload"][:] = source

        def mapped_read() -> None:
            target[:] = bytes_of["upload"]

        def host() -> None:
            target[:] = source

        paths = {"staging": staging, "readback": readback, "host": host}
        if _is_device_local(device, buffers["upload"]):
            paths |= {"mapped": mapped} | (
                {"mapped read": mapped_read} if size <= READ_AT_MOST else {}
            )
        staging()
        readback()
        if not np.array_equal(source, target):
            raise AssertionError(f"{size} bytes came back changed")
        return {path: _median(function, repeats) for path, function in paths.items()}


def _is_device_local(device: Device, buffer: Buffer) -> bool:
    assert buffer.block is not None
    return bool(device.info.memory_types[buffer.block.type_index].bits & DEVICE_LOCAL)


def _median(function: Callable[[], None], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def tables(info: DeviceInfo) -> dict[str, Any]:
    """Return a device's heaps and memory types as plain data, and two limits of mapped memory."""
    return {
        "heaps": [
            {
                "size_bytes": heap.size_bytes,
                "device_local": heap.device_local,
                "budget_bytes": heap.budget_bytes,
                "usage_bytes": heap.usage_bytes,
            }
            for heap in info.heaps
        ],
        "memory_types": [
            {"heap": kind.heap, "flags": sorted(kind.flags)} for kind in info.memory_types
        ],
        "limits": {
            name: info.limits[name]
            for name in ("nonCoherentAtomSize", "minStorageBufferOffsetAlignment")
        },
    }


def record(index: int = 0, sizes: Sequence[int] = SIZES, repeats: int = 9) -> dict[str, Any]:
    """Return what `measure` finds, with the device's memory and where the numbers come from.

    Args:
        index: number of the device.
        sizes: bytes to move.
        repeats: counted repetitions.
    """
    with Instance() as instance:
        info = physical_device.describe(instance, instance.physical_devices()[index], index)
    return {
        "device": info.name,
        "type": info.type,
        "driver": info.driver,
        "api_version": list(info.api_version),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "made_by": f"labs/lib/shared/copies.py, median of {repeats}",
        **tables(info),
        "bytes_a_second": measure(index, sizes, repeats),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    json.dump(record(parser.parse_args().device), sys.stdout, indent=1)
