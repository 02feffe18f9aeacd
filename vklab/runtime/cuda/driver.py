"""Part of CUDA's driver API: import memory and semaphores of Vulkan, through ctypes.

Layouts of structures are those of cuda.h; a test holds them. Visited by lab 03.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from vklab.base import forking
from vklab.errors import SetupError, VklabError

OPAQUE_FD, TIMELINE_FD, DEDICATED = 1, 9, 1
UUID_BYTES = 16
Reserved = ctypes.c_uint * 16


class _Handle(ctypes.Union):
    """Union of handles: a file descriptor, or two pointers on Windows."""

    _fields_ = (("fd", ctypes.c_int), ("pointers", ctypes.c_void_p * 2))


class MemoryDesc(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""

    _fields_ = (("type", ctypes.c_int), ("handle", _Handle), ("size", ctypes.c_ulonglong),
                ("flags", ctypes.c_uint), ("reserved", Reserved))  # fmt: skip


class BufferDesc(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = (("offset", ctypes.c_ulonglong), ("size", ctypes.c_ulonglong),
                ("flags", ctypes.c_uint), ("reserved", Reserved))  # fmt: skip


class SemaphoreDesc(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC."""

    _fields_ = (("type", ctypes.c_int), ("handle", _Handle), ("flags", ctypes.c_uint),
                ("reserved", Reserved))  # fmt: skip


class SemaphoreParams(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and _WAIT_PARAMS, of which only `value` is used."""

    _fields_ = (("value", ctypes.c_ulonglong), ("unused", ctypes.c_ulonglong * 8),
                ("flags", ctypes.c_uint), ("reserved", Reserved))  # fmt: skip


_POINTER = ctypes.c_void_p
# Parameters of each function: without them ctypes cuts 64-bit handles to 32.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (ctypes.c_int, _POINTER),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, ctypes.c_int),
    "cuDeviceGetUuid": (_POINTER, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (_POINTER, ctypes.c_int),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuMemFree_v2": (ctypes.c_ulonglong,),
    "cuImportExternalMemory": (_POINTER, _POINTER),
    "cuExternalMemoryGetMappedBuffer": (_POINTER, _POINTER, _POINTER),
    "cuDestroyExternalMemory": (_POINTER,),
    "cuImportExternalSemaphore": (_POINTER, _POINTER),
    "cuSignalExternalSemaphoresAsync": (_POINTER, _POINTER, ctypes.c_uint, _POINTER),
    "cuWaitExternalSemaphoresAsync": (_POINTER, _POINTER, ctypes.c_uint, _POINTER),
    "cuDestroyExternalSemaphore": (_POINTER,),
}


@functools.cache
def load_driver(name: str = "libcuda.so.1") -> Driver:
    """Open CUDA's driver library; raise SetupError where there is none."""
    repair = "install NVIDIA's driver for a GPU of NVIDIA; other GPUs have no CUDA"
    if sys.platform != "linux":
        raise SetupError(
            "memory is shared with CUDA through file descriptors, which needs Linux",
            "use numpy() on this system",
        )
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise SetupError(f"CUDA's driver cannot be opened ({error})", repair) from error
    missing = [function for function in _FUNCTIONS if not hasattr(library, function)]
    if missing:
        raise SetupError(f"{name} has no {', '.join(missing)}", "update NVIDIA's driver")
    driver = Driver(library)
    try:
        driver.call("cuInit", 0)
    except VklabError as error:
        raise SetupError(f"CUDA does not start: {error}", repair) from error
    return driver


class Driver:
    """CUDA's driver library: calls by name, with a failure as an error."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.functions = {}
        for name, parameters in _FUNCTIONS.items():
            function = self.functions[name] = getattr(library, name)
            function.argtypes, function.restype = parameters, ctypes.c_int

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise VklabError with the name of its CUresult on failure."""
        result = self.functions[name](*arguments)
        if result:
            text = ctypes.c_char_p()
            self.functions["cuGetErrorName"](result, ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise VklabError(f"{name} failed with {reason} ({result})")

    def uuids(self) -> list[str]:
        """Return the UUID of each device in CUDA's order, as hexadecimal digits."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = []
        for number in range(count.value):
            device, uuid = ctypes.c_int(), (ctypes.c_ubyte * UUID_BYTES)()
            self.call("cuDeviceGet", ctypes.byref(device), number)
            self.call("cuDeviceGetUuid", uuid, device)
            found.append(bytes(uuid).hex())
        return found


class Imported:
    """Memory or a semaphore of Vulkan in CUDA; destroyed when nothing refers to it any more.

    Args:
        device: the device of CUDA.
        kind: "ExternalMemory" or "ExternalSemaphore".
        handle: as the attribute.
        address: as the attribute.

    Attributes:
        handle: the CUexternalMemory or CUexternalSemaphore.
        address: the first byte in CUDA's address space; 0 for a semaphore.
    """

    def __init__(self, device: CudaDevice, kind: str, handle: int, address: int = 0) -> None:
        self.handle, self.address = handle, address
        self.free = weakref.finalize(self, _free, device, kind, handle, address)
        self.free.atexit = False  # the process's end frees it, and CUDA may have ended before


def _free(device: CudaDevice, kind: str, handle: int, address: int) -> None:
    """Destroy what was imported, after all work that may use it; errors have nobody to read them.

    After a time-out nothing is destroyed: CUDA's work may wait for a run that never ends.

    Args:
        device: the device.
        kind: the last words of the destroying function's name.
        handle: the external object.
        address: the address of mapped memory; 0 for none.
    """
    if device.is_stuck or forking.is_inherited(device.owner):
        return
    with contextlib.suppress(VklabError), device.current():
        device.driver.call("cuCtxSynchronize")  # kernels that use the memory may still run
        if address:
            device.driver.call("cuMemFree_v2", address)
        device.driver.call(f"cuDestroy{kind}", handle)


class CudaDevice:
    """One device of CUDA, with the primary context, which PyTorch uses as well.

    Args:
        driver: the library.
        number: the number of the device in CUDA's order.

    Attributes:
        is_stuck: whether a run of vklab never ended, so that nothing may be waited for.
    """

    def __init__(self, driver: Driver, number: int) -> None:
        self.is_stuck = False
        self.driver = driver
        self.number = number
        self.owner = forking.owner()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(device), number)
        # Never released: PyTorch keeps it until the process ends, and so do tensors.
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context.value

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the context the current one of this thread inside the `with`."""
        self.driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def import_memory(
        self, descriptor: int, memory_bytes: int, size_bytes: int, is_dedicated: bool
    ) -> Imported:
        """Map memory of Vulkan into CUDA's address space.

        Args:
            descriptor: the opaque fd of the memory; taken over, also on failure.
            memory_bytes: size of the allocation.
            size_bytes: bytes to map, from the first on.
            is_dedicated: whether the allocation is for one buffer.
        """
        memory, address = ctypes.c_void_p(), ctypes.c_ulonglong()
        handle = _Handle(fd=descriptor)
        flags = DEDICATED if is_dedicated else 0
        described = MemoryDesc(type=OPAQUE_FD, handle=handle, size=memory_bytes, flags=flags)
        with self.current():
            self._import("cuImportExternalMemory", memory, described, descriptor)
            range_ = BufferDesc(offset=0, size=size_bytes)
            try:
                self.driver.call(
                    "cuExternalMemoryGetMappedBuffer",
                    ctypes.byref(address),
                    memory,
                    ctypes.byref(range_),
                )
            except VklabError:
                self.driver.call("cuDestroyExternalMemory", memory)
                raise
        return Imported(self, "ExternalMemory", memory.value or 0, address.value)

    def import_semaphore(self, descriptor: int) -> Imported:
        """Import a timeline semaphore of Vulkan from an opaque fd, which is taken over."""
        semaphore = ctypes.c_void_p()
        described = SemaphoreDesc(type=TIMELINE_FD, handle=_Handle(fd=descriptor))
        with self.current():
            self._import("cuImportExternalSemaphore", semaphore, described, descriptor)
        return Imported(self, "ExternalSemaphore", semaphore.value or 0)

    def _import(self, name: str, out: Any, described: Any, descriptor: int) -> None:
        try:
            self.driver.call(name, ctypes.byref(out), ctypes.byref(described))
        except BaseException:
            os.close(descriptor)  # after success the driver owns it
            raise

    def enqueue(self, kind: str, semaphore: Imported, stream: int, value: int) -> None:
        """Make a stream signal a value of a semaphore, or wait for it.

        Args:
            kind: "Signal" or "Wait".
            semaphore: the semaphore.
            stream: the CUstream; 0 for the default stream.
            value: the value.
        """
        handle, params = ctypes.c_void_p(semaphore.handle), SemaphoreParams(value=value)
        self.driver.call(
            f"cu{kind}ExternalSemaphoresAsync",
            ctypes.byref(handle),
            ctypes.byref(params),
            1,
            stream,
        )
