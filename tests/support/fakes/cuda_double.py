"""A stand-in for CUDA's driver on a CPU device: memory by mmap, semaphores raised by the host.

Mesa exports memory as a file with a header of its own, which names the first byte of the memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch

from support.runs.waits import LIMIT_S
from vklab.errors import VklabError
from vklab.runtime.cuda import driver
from vklab.vulkan import api, opaque_fd


class OnCuda(torch.Tensor):
    """A CPU tensor that says it is on CUDA's first device."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def on_cuda(tensor: torch.Tensor) -> OnCuda:
    """Return a tensor that says it is on CUDA's first device, on the same memory."""
    return tensor.as_subclass(OnCuda)


class Driver(driver.Driver):
    """Functions of libcuda with effects on the host.

    Attributes:
        uuid: the UUID of its only device.
        live: the number of objects that exist, by kind.
        failing: the name of a function that fails.
        exported: the Vulkan semaphore that is imported next.
        semaphores: those that were imported, by their handle.
        log: the semaphore operations in order.
    """

    def __init__(self, uuid: str) -> None:
        self.functions = {}
        self.uuid = uuid
        self.live: Counter[str] = Counter()
        self.failing = ""
        self.exported: Any = None
        self.semaphores: dict[int, Any] = {}
        self.log: list[tuple[str, int, int]] = []
        self._maps: dict[int, mmap.mmap] = {}

    def call(self, name: str, *arguments: Any) -> None:
        if name == self.failing:
            raise VklabError(f"{name} failed with CUDA_ERROR_UNKNOWN (999)")
        getattr(self, name)(*(getattr(each, "_obj", each) for each in arguments))

    def uuids(self) -> list[str]:
        return [self.uuid]

    def cuDeviceGet(self, out, number):
        out.value = number

    def cuDevicePrimaryCtxRetain(self, out, device):
        out.value = 7

    def cuCtxPushCurrent_v2(self, context):
        assert context == 7
        self.live["context"] += 1

    def cuCtxPopCurrent_v2(self, out):
        self.live["context"] -= 1

    def cuCtxSynchronize(self):
        assert self.live["context"] > 0

    def cuImportExternalMemory(self, out, described):
        assert described.type == driver.OPAQUE_FD
        whole = os.lseek(described.handle.fd, 0, os.SEEK_END)
        made = mmap.mmap(described.handle.fd, whole)
        os.close(described.handle.fd)
        _, first = struct.unpack_from("2Q", made)
        assert first + described.size <= whole
        out.value = id(made)
        self._maps[id(made)] = made
        self.live["memory"] += 1

    def cuExternalMemoryGetMappedBuffer(self, out, memory, described):
        made = self._maps[memory.value]
        _, first = struct.unpack_from("2Q", made)
        out.value = ctypes.addressof(ctypes.c_char.from_buffer(made)) + first + described.offset
        self.live["address"] += 1

    def cuMemFree_v2(self, address):
        self.live["address"] -= 1

    def cuDestroyExternalMemory(self, memory):
        self.live["memory"] -= 1
        self._maps.pop(getattr(memory, "value", memory))  # ctypes keeps the pages

    def cuImportExternalSemaphore(self, out, described):
        assert described.type == driver.TIMELINE_FD
        os.close(described.handle.fd)
        out.value = id(self.exported)
        self.semaphores[out.value] = self.exported
        self.live["semaphore"] += 1

    def cuDestroyExternalSemaphore(self, semaphore):
        self.live["semaphore"] -= 1
        del self.semaphores[semaphore]

    def cuSignalExternalSemaphoresAsync(self, handle, params, count, stream):
        assert count == 1 and self.live["context"] > 0
        self.log.append(("signal", stream, params.value))
        semaphore = self.semaphores[handle.value]
        info = api.struct("VkSemaphoreSignalInfo", semaphore=semaphore.handle, value=params.value)
        semaphore.device.call("vkSignalSemaphore", info)

    def cuWaitExternalSemaphoresAsync(self, handle, params, count, stream):
        assert count == 1 and handle.value in self.semaphores and self.live["context"] > 0
        self.log.append(("wait", stream, params.value))


class Stream:
    """A stream whose work is done at once; `synchronize` waits for the runs that it waits for."""

    cuda_stream = 0

    def __init__(self, double: Driver) -> None:
        self._double = double

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        for semaphore in self._double.semaphores.values():
            semaphore.wait(LIMIT_S)


def fake_torch(double: Driver) -> Any:
    """Return torch's functions that `sharing` uses, on the memory of a `Driver`."""
    stream = Stream(double)
    cuda = SimpleNamespace(
        is_current_stream_capturing=lambda: False, current_stream=lambda number: stream
    )

    def as_tensor(values: Any, device: Any) -> torch.Tensor:
        given = values.__cuda_array_interface__
        [count], (address, _) = given["shape"], given["data"]
        size = count * int(given["typestr"][2:])
        kinds = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
        kind = kinds[given["typestr"][1]]
        dtype = getattr(torch, kind if kind == "bool" else f"{kind}{8 * size // count}")
        memory = (ctypes.c_char * size).from_address(address)
        memory.keeps = values
        return torch.frombuffer(memory, dtype=dtype)

    names = {
        name: getattr(torch, name)
        for name in (
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "int8",
            "int32",
            "int64",
            "uint8",
            "bool",
        )
    }
    return SimpleNamespace(
        cuda=cuda,
        as_tensor=as_tensor,
        empty=torch.empty,
        stream=stream,
        device=lambda kind, number: "cpu",
        __version__="double",
        **names,
    )


class HostSemaphore(opaque_fd.TimelineSemaphore):
    """A timeline semaphore that only seems to be exported."""

    double: Driver

    def __init__(self, device: Any, exported: bool = True) -> None:
        super().__init__(device, exported=False)
        self.double.exported = self

    def descriptor(self) -> int:
        return os.open(os.devnull, os.O_RDONLY)
