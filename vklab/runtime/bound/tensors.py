"""DeviceTensor: an input or output of a binding, in memory that stays on the device.

NumPy and other libraries read mapped memory in place, through arrays or DLPack. Visited by lab 03.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from vklab.errors import ModelError
from vklab.runtime.io_binding import Given
from vklab.runtime.open_devices import OpenDevice

# DLPack's types of devices whose memory the host reads: kDLCPU, kDLCUDAHost, kDLROCMHost; and the
# names of others. Source: DLPack, dlpack.h.
CPU, HOSTS, CUDA = 1, (1, 3, 11), 2
NAMES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA (managed)"}
# The name of a value, and whether it is an output.
Key = tuple[str, bool]


def on_host(name: str, value: Any, cuda_number: int | None = None) -> Any:
    """Return a value that NumPy reads without a copy, from an object of any library with DLPack.

    Args:
        name: what the value is for, for the error.
        value: the value; if it has no DLPack, it is returned as it is.
        cuda_number: the device of CUDA whose tensors are returned as they are; None for none.

    Raises ModelError for a value on another GPU.
    """
    if isinstance(value, (np.ndarray, DeviceTensor)) or not hasattr(value, "__dlpack_device__"):
        return value
    kind, number = value.__dlpack_device__()
    if is_on(value, cuda_number):
        return value
    if kind not in HOSTS:
        raise ModelError(
            f"{name} is given on a device of type {NAMES.get(int(kind), int(kind))}, "
            f"number {number}; copy it to the host, for example with .cpu()"
        )
    value = value.detach() if hasattr(value, "detach") else value
    return value if hasattr(value, "__array__") else np.from_dlpack(value)


def is_on(value: Any, cuda_number: int | None) -> bool:
    """Tell whether a value is a tensor of another library on a device of CUDA."""
    if cuda_number is None or isinstance(value, DeviceTensor):
        return False
    ask = getattr(value, "__dlpack_device__", None)
    return ask is not None and tuple(ask()) == (CUDA, cuda_number)


class TensorHome(Protocol):
    """Interface of a binding's values: a `programs.BoundPrograms` or a `copying.CopiedRun`."""

    opened: OpenDevice
    reason: str

    @property
    def cuda_number(self) -> int | None:
        """Return the number of the device in CUDA, if it shares the values; else None."""

    def torch(self, key: Key) -> Any:
        """Return a CUDA tensor on the memory of a value; ModelError if it is not shared."""

    def require_open(self) -> None:
        """Raise VklabError if the binding was closed, or its session."""

    def info(self, key: Key) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an input or output."""

    def view(self, key: Key) -> np.ndarray | None:
        """Return the memory of a value as an array; None where that is not possible."""

    def read(self, key: Key) -> np.ndarray:
        """Return a copy of the present value."""

    def write(self, key: Key, array: np.ndarray) -> None:
        """Replace a whole value."""

    def place(self, key: Key) -> Given:
        """Return buffer and offset of the present value."""

    def is_fixed(self, key: Key) -> bool:
        """Tell whether a value never moves in memory."""

    def is_resident(self, key: Key) -> bool:
        """Tell whether the value is in device memory, which the host may be unable to map."""


class DeviceTensor:
    """A value of a binding that stays on the device: read it, write it, or bind it elsewhere.

    `numpy()`, `numpy.asarray`, `numpy.from_dlpack` and `torch.from_dlpack` give views of the
    memory, without a copy, if the host can map the memory and the device stores the model's dtype;
    `is_view` tells. The values of a view are valid until the next run. The memory of a view lasts
    as long as the view, also after the binding was closed, unless the device is closed.

    `tensor[index] = array` writes. Raises VklabError once the binding is closed.

    Args:
        home: the binding's values.
        name: the name of the input or output.
        is_output: True for an output.
        origin: as the attribute.
        reason: as the attribute.

    Attributes:
        origin: "copied", an input's own memory; "imported", the memory of the caller's array;
            "bound", a tensor of another binding; "state"; or "output".
        reason: why an input that was to be imported was copied; else empty.
    """

    def __init__(
        self, home: TensorHome, name: str, is_output: bool, origin: str, reason: str = ""
    ) -> None:
        self.home = home
        self.key = (name, is_output)
        self.name = name
        self.origin = origin
        self.reason = reason

    @property
    def dtype(self) -> np.dtype:
        """Return the model's dtype of the value."""
        return np.dtype(self.home.info(self.key)[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.home.info(self.key)[1]

    @property
    def is_view(self) -> bool:
        """Tell whether `numpy()` returns the memory itself and not a copy."""
        return self.home.view(self.key) is not None

    def numpy(self) -> np.ndarray:
        """Return the present value: a view that is valid until the next run, or else a copy."""
        view = self.home.view(self.key)
        return self.home.read(self.key) if view is None else view

    def torch(self) -> Any:
        """Return a CUDA tensor of PyTorch on the memory, if the binding was made with `cuda`.

        The tensor keeps the memory, also after the binding was closed. Until the next run it has
        the present value; an input's tensor may be written. Raises ModelError if CUDA cannot read
        the memory.
        """
        return self.home.torch(self.key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False and not self.is_view:
            raise ValueError(f"{self} has no view, and copy=False forbids a copy")
        return np.array(self.numpy(), dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        if self.home.cuda_number is not None:
            return self.torch().__dlpack__(**options)
        if options.get("copy") is False and not self.is_view:
            raise BufferError(f"{self} has no view, and copy=False forbids a copy")
        array = self.numpy()
        if array.dtype.kind not in "biufc":
            raise BufferError(
                f"{self}: DLPack from NumPy has no {array.dtype}; view numpy() as "
                f"np.uint{8 * array.dtype.itemsize}"
            )
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        number = self.home.cuda_number
        return (CPU, 0) if number is None else (CUDA, number)

    def __getitem__(self, index: Any) -> Any:
        return self.numpy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        view = self.home.view(self.key)
        value = on_host(self.name, value, self.home.cuda_number)
        if is_on(value, self.home.cuda_number):
            self._require_dtype(value)
            self.torch()[index] = value
            return
        if (
            view is None
            and index is ...
            and isinstance(value, np.ndarray)
            and ((value.dtype, value.shape) == (self.dtype, self.shape))
        ):  # without a further copy on the host
            self.home.write(self.key, value)
            return
        array = view
        if array is None:  # all of it is written, or some of it is changed
            array = np.empty(self.shape, self.dtype) if index is ... else self.home.read(self.key)
        self._require_dtype(value)
        try:
            array[index] = value
        except (ValueError, TypeError, IndexError) as error:
            raise ModelError(f"{self} cannot be written: {error}") from error
        if view is None:
            self.home.write(self.key, array)

    def _require_dtype(self, value: Any) -> None:
        given = getattr(value, "dtype", None)
        if isinstance(given, np.dtype) and given == self.dtype:
            return
        if given is not None and str(given).removeprefix("torch.") != str(self.dtype):
            raise ModelError(f"{self} is written with {given}; convert the value to {self.dtype}")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        dtype, shape = self.home.info(self.key)
        return f"{self.name}: {dtype}[{','.join(map(str, shape))}] on {self.home.opened.info.name}"


class Tensors(dict[str, DeviceTensor]):
    """Tensors by name; an unknown name is an error that lists the known ones."""

    def __missing__(self, name: str) -> DeviceTensor:
        raise KeyError(f"{name!r} is not bound; choose from {', '.join(self)}")
