"""Sharing: a device of vklab that is also a device of CUDA, with PyTorch tensors on its memory.

Decides whether two APIs mean one device, and how their work is ordered: by timeline semaphores, or
by the host. `bound` decides what is shared. Visited by lab 03.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vklab.errors import ModelError, SetupError, VklabError
from vklab.runtime.cuda import driver
from vklab.runtime.cuda.driver import CudaDevice, Imported
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.program import Program
from vklab.vulkan import dma_buf, opaque_fd
from vklab.vulkan.opaque_fd import (
    OpaqueBuffer,
    OrderedSubmission,
    RepeatedCommands,
    TimelineSemaphore,
)

# NumPy describes these dtypes to CUDA; others go by their bits, and PyTorch gives the name back.
PLAIN = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                   "float16", "float32", "float64", "complex64", "complex128"})  # fmt: skip
REPAIR = "install a build of PyTorch with CUDA (pytorch.org), or read outputs with numpy()"


def require_torch() -> Any:
    """Return torch; raise SetupError where it is not installed, or has no CUDA device."""
    try:
        import torch
    except ImportError as error:
        raise SetupError(f"CUDA tensors need PyTorch ({error})", REPAIR) from error
    if torch.version.cuda is None:
        raise SetupError(f"torch {torch.__version__} is built without CUDA", REPAIR)
    if not torch.cuda.is_available():
        raise SetupError(
            f"torch {torch.__version__} sees no CUDA device",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    return torch


def of(opened: OpenDevice) -> Sharing:
    """Return what all bindings of an open device share with CUDA, made at its first use.

    Raises SetupError where the device, the system or PyTorch cannot share memory.
    """
    sharing: Sharing = opened.owned("cuda", lambda: Sharing(opened))
    return sharing


class Sharing:
    """An open device as a device of CUDA.

    Attributes:
        opened: the device.
        torch: the module.
        cuda: the same device in CUDA.
        name: the torch.device.
    """

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        device, label = opened.device, opened.info.label
        repair = "use a device whose driver has it, or update the driver"
        if opaque_fd.MEMORY_EXTENSION not in device.extensions:
            raise SetupError(
                f"{label} has no {opaque_fd.MEMORY_EXTENSION}, so its memory cannot "
                "be shared with CUDA",
                repair,
            )
        if "exportable" not in dma_buf.features(device, opaque_fd.OPAQUE_FD):
            raise SetupError(f"{label} does not export buffers as opaque file descriptors", repair)
        self.torch = require_torch()
        library = driver.load_driver()
        uuids = library.uuids()
        if opened.info.uuid not in uuids:
            raise SetupError(
                f"{label} is none of CUDA's devices: its UUID is {opened.info.uuid}, "
                f"CUDA has {', '.join(uuids) or 'none'}",
                "load the model on the GPU of the tensors, with device=, and check "
                "CUDA_VISIBLE_DEVICES",
            )
        self.cuda = CudaDevice(library, uuids.index(opened.info.uuid))
        self.name = self.torch.device("cuda", self.cuda.number)

    def buffer(self, size_bytes: int) -> CudaBuffer:
        """Return a new buffer that both APIs have mapped."""
        return CudaBuffer(self, size_bytes)

    def order(self, ahead: bool) -> StreamOrder:
        """Return the order of one binding's runs and CUDA's work, as `ahead` of `bind` says.

        Raises SetupError if `ahead` is asked for and the device exports no timeline semaphores.
        """
        return AheadOrder(self) if ahead else StreamOrder(self)

    def tensor(
        self, buffer: CudaBuffer, offset_bytes: int, dtype: str, shape: tuple[int, ...]
    ) -> Any:
        """Return a CUDA tensor on the memory of a value, which keeps the memory.

        Args:
            buffer: the buffer.
            offset_bytes: the first byte of the value.
            dtype: dtype of the value.
            shape: shape of the value.
        """
        torch = self.torch
        kind = getattr(torch, dtype, None)
        if kind is None:
            raise ModelError(f"PyTorch has no dtype {dtype}; read the value with numpy()")
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=kind, device=self.name)
        stored = np.dtype(dtype if dtype in PLAIN else f"uint{8 * np.dtype(dtype).itemsize}")
        values = _Values(buffer.imported, offset_bytes, count, stored)
        tensor = torch.as_tensor(values, device=self.name)
        if tensor.data_ptr() != values.address:
            raise VklabError(f"torch {torch.__version__} copied a tensor instead of sharing it")
        return tensor.view(kind).view(shape)

    def close(self) -> None:
        """Do nothing: the primary context belongs to the process."""


class _Values:
    """Bytes of imported memory as an array of CUDA; keeps the memory."""

    def __init__(self, imported: Imported, offset_bytes: int, count: int, dtype: np.dtype) -> None:
        self._imported = imported
        self.address = imported.address + offset_bytes
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
        }


class CudaBuffer(OpaqueBuffer):
    """A buffer of Vulkan that is mapped into CUDA's address space.

    Attributes:
        imported: the memory in CUDA. Tensors refer to it, so that it may outlive the buffer.
    """

    def __init__(self, sharing: Sharing, size_bytes: int) -> None:
        super().__init__(sharing.opened.device, size_bytes)
        try:
            self.imported = sharing.cuda.import_memory(
                self.descriptor(), self.memory_bytes, size_bytes, self.is_dedicated
            )
        except BaseException:
            self.close()
            raise

    def _destroy(self) -> None:
        super()._destroy()
        self.__dict__.pop("imported", None)


class StreamOrder:
    """Order of a binding's runs and the work on PyTorch's current stream, kept by the host.

    A run comes after what the stream was given before it, and before what it is given later.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing

    def stream(self) -> Any:
        """Return PyTorch's current stream on the device; raise VklabError during a capture."""
        cuda = self._sharing.torch.cuda
        if cuda.is_current_stream_capturing():
            raise VklabError(
                "a CUDA graph is being captured, and it would not contain the run of "
                "this binding: run it before or after the capture"
            )
        return cuda.current_stream(self._sharing.cuda.number)

    def run(self, program: Program) -> None:
        """Run a recording when the stream's work is done, and wait for its end."""
        self.synchronize()
        program.prepare()
        program.submit()
        program.wait()

    def synchronize(self) -> None:
        """Wait until the work on PyTorch's current stream is done."""
        stream = self.stream()
        if not stream.query():  # which is faster than to wait for no work
            stream.synchronize()

    def close(self) -> None:
        """Free the order's resources, after the programs were closed; none after a time-out."""
        self._sharing.cuda.is_stuck = self._sharing.opened.is_stuck


class AheadOrder(StreamOrder):
    """Order kept on the device, by a timeline semaphore in both APIs: the host does not wait.

    The device switches between the contexts of CUDA and Vulkan, which takes 0.3 ms there and back
    on an NVIDIA H200, however the work is ordered. The host's order avoids that as long as CUDA has
    no work between two runs; here CUDA's stream signals and waits in each run.
    """

    def __init__(self, sharing: Sharing) -> None:
        super().__init__(sharing)
        if not opaque_fd.is_exportable(sharing.opened.device):
            raise SetupError(
                f"{sharing.opened.info.label} exports no timeline semaphores, which "
                "order runs ahead of CUDA's work",
                "bind without ahead=True: the host waits for each run",
            )
        self._submissions: dict[Program, OrderedSubmission] = {}
        self._stream: int | None = None
        self._semaphore = TimelineSemaphore(sharing.opened.device)
        try:
            self._imported = sharing.cuda.import_semaphore(self._semaphore.descriptor())
        except BaseException:
            self._semaphore.close()
            raise

    def run(self, program: Program) -> None:
        """Submit a recording between the earlier and the later work of the stream."""
        handle = self.stream().cuda_stream
        if program.opened.lost:
            program.require_idle()
        submission = self._submissions.get(program)
        if submission is None:
            commands = program.own(RepeatedCommands(program.command_pool))
            program.record(commands)
            submission = self._submissions[program] = OrderedSubmission(commands, self._semaphore)
        cuda, semaphore = self._sharing.cuda, self._semaphore
        with cuda.current():
            if handle != self._stream and semaphore.last:  # the last run was on another stream
                cuda.enqueue("Wait", self._imported, handle, semaphore.last)
            self._stream = handle
            cuda.enqueue("Signal", self._imported, handle, semaphore.last + 1)
            semaphore.last += 1
            program.submit(submission)  # type: ignore[arg-type]
            cuda.enqueue("Wait", self._imported, handle, semaphore.last)

    def close(self) -> None:
        """Free the semaphore, after the programs were closed; a second call does nothing."""
        super().close()
        self._submissions.clear()
        if not self._sharing.cuda.is_stuck:
            self._imported.free()
            self._semaphore.close()
