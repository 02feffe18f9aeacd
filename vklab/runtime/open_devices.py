"""Devices of this process: listed, selected by index or name, and opened once each.

Opening a device is slow, and sessions share devices; so a device stays open until `close_all`,
which also runs when the process ends. Visited by lab 02b.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from vklab import settings
from vklab.base import draw, forking
from vklab.errors import SetupError, VulkanError
from vklab.runtime.kernels import Kernels
from vklab.types import DeviceInfo
from vklab.vulkan import api, physical_device
from vklab.vulkan import instance as instances
from vklab.vulkan.command import CommandPool
from vklab.vulkan.device import Device
from vklab.vulkan.instance import Instance
from vklab.vulkan.memory import Allocator
from vklab.vulkan.pipeline import PipelineCache

log = logging.getLogger(__name__)
# Rank of each device type; a CPU device comes last, whatever its memory.
_SPEED = {"discrete": 3, "integrated": 2, "virtual": 1, "other": 0, "cpu": -1}


class Devices(tuple[DeviceInfo, ...]):
    """All devices of this machine; shown as a table in a notebook."""

    def __str__(self) -> str:
        return "\n".join(str(info) for info in self) or "no Vulkan device"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (
                info.index,
                info.name,
                info.type,
                info.driver,
                ".".join(map(str, info.api_version)),
                draw.bytes_text(info.memory_bytes),
                info.refusal or "yes",
            )
            for info in self
        ]
        headers = ("index", "name", "type", "driver", "Vulkan", "device-local memory", "usable")
        return draw.table_html("Vulkan devices", headers, rows)


class Closable(Protocol):
    """Interface of an object that owns device resources until it is closed."""

    def close(self) -> bool | None:
        """Free the resources; a second call does nothing. Return False if they are still in use."""


class _Abandonable(Closable, Protocol):
    def abandon(self) -> None:
        """Forget all resources without a call into the driver, in a child made by `os.fork`."""


class OpenDevice:
    """One open device, and the objects that its sessions share: allocator, weights and kernels.

    Args:
        instance: the Vulkan instance.
        physical: the VkPhysicalDevice handle.
        info: the facts of the device.
    """

    def __init__(self, instance: Instance, physical: Any, info: DeviceInfo) -> None:
        self.info = info
        self.lost = False  # VK_ERROR_DEVICE_LOST was returned: the device runs no more work
        self.is_stuck = False  # submitted work never ended: its resources must not be freed
        self.sessions: weakref.WeakSet[_Abandonable] = weakref.WeakSet()
        self._forgotten: deque[Closable] = deque()
        self._owned: dict[str, Closable] = {}
        self._owned_lock = threading.Lock()
        self.device = Device(instance, physical, info)
        try:
            self.allocator = Allocator(self.device)
            self.pipeline_cache = PipelineCache(self.device)
            self.kernels = Kernels(self.device, self.pipeline_cache)
        except BaseException:
            self.device.close()
            raise

    def owned(self, name: str, make: Callable[[], Closable]) -> Any:
        """Return an object that all sessions of this device share, created at its first use.

        Args:
            name: the key of the object.
            make: creates the object; `close` of the device closes it.
        """
        with self._owned_lock:
            if name not in self._owned:
                self._owned[name] = make()
            return self._owned[name]

    def command_pool(self, transfer: bool = False) -> CommandPool:
        """Return a new command pool; pools are not shared, because they are not thread-safe.

        Source: Vulkan 1.3, section 'Threading Behavior'.
        """
        queue = self.device.transfer_queue if transfer else self.device.compute_queue
        return CommandPool(self.device, queue)

    def forget(self, *parts: Closable) -> None:
        """Queue the resources of a session that was collected without `close`.

        The garbage collector may call this at any moment; `free_forgotten` frees them later.
        """
        self._forgotten.extend(parts)

    def free_forgotten(self) -> bool:
        """Free the resources of collected sessions; return False if some are still in use."""
        in_use = []
        while self._forgotten and not self.is_stuck:
            part = self._forgotten.popleft()
            if part.close() is False:
                in_use.append(part)
        self._forgotten.extend(in_use)
        return not in_use

    def abandon(self) -> None:
        """Forget the sessions and the device in a child made by `os.fork`."""
        self.is_stuck = True
        for session in list(self.sessions):
            session.abandon()

    def close(self) -> None:
        """Close the sessions that are still open, and the device."""
        for session in list(self.sessions):
            session.close()
        deadline = time.monotonic() + 2 * float(settings.get("TIMEOUT")) + 1
        while not self.free_forgotten():
            if time.monotonic() > deadline:
                self.is_stuck = True
            time.sleep(0.01)
        for part in self._owned.values():
            part.close()
        if self.is_stuck:
            return
        self.kernels.close()
        self.pipeline_cache.close()
        self.device.close()


# One instance with the validation layer and one without: the layer is enabled at creation.
_instances: dict[bool, Instance] = {}
_open: dict[tuple[bool, int], OpenDevice] = {}
_lost: list[OpenDevice] = []
_lock = forking.lock()


def _instance() -> Instance:
    validate = bool(settings.get("VALIDATE"))
    with _lock:
        if validate not in _instances:
            _instances[validate] = Instance(validate)
        return _instances[validate]


def devices() -> Devices:
    """Return every Vulkan device of this machine, including devices that vklab cannot use.

    Raises SetupError if no Vulkan loader or no driver is installed.
    """
    instance = _instance()
    return Devices(
        physical_device.describe(instance, handle, index)
        for index, handle in enumerate(instance.physical_devices())
    )


def select(wanted: int | str | None = None) -> DeviceInfo:
    """Return one device: by index, by part of its name, the fastest "gpu" or "cpu", or the fastest.

    The DEVICE switch decides if `wanted` is None. Raises SetupError listing the devices of this
    machine.
    """
    found = devices()
    if not found:
        raise instances.no_driver()
    if wanted is None:
        wanted = str(settings.get("DEVICE")) or None
    if wanted is None:
        usable = [info for info in found if not info.refusal]
        if not usable:
            reasons = "; ".join(f"{info.name}: {info.refusal}" for info in found)
            raise SetupError(f"no device can be used: {reasons}")
        return max(usable, key=_speed)
    if not isinstance(wanted, (int, np.integer, str)) or not str(wanted).strip():
        raise SetupError(f"device={wanted!r} is neither an index nor part of a device's name")
    if wanted in ("gpu", "cpu"):
        kind = [info for info in found if info.is_cpu == (wanted == "cpu") and not info.refusal]
        if not kind:
            raise SetupError(f"no usable device is a {wanted.upper()}; there are:\n{found}")
        return max(kind, key=_speed)
    if not isinstance(wanted, str) or wanted.strip().isdigit():
        index = int(wanted)
        if not 0 <= index < len(found):
            raise SetupError(f"there is no device {index}; there are:\n{found}")
        return found[index]
    matching = [info for info in found if wanted.lower() in f"{info.name} {info.driver}".lower()]
    if not matching:
        raise SetupError(f"no device is called {wanted!r}; there are:\n{found}")
    return matching[0]


def _speed(info: DeviceInfo) -> tuple[int, ...]:
    # Of CPU devices with equal memory, the driver with wider workgroups has been the faster one.
    width = info.limit("maxComputeWorkGroupInvocations")
    return (_SPEED[info.type], info.memory_bytes, width, -info.index)


def open_device(wanted: int | str | None = None) -> OpenDevice:
    """Open a device selected as in `select`, or return it if it is open already."""
    with _lock:
        info = select(wanted)
        instance = _instance()
        key = (instance.validate, info.index)
        if key in _open and _open[key].lost:
            _lost.append(_open.pop(key))  # the lost device's sessions may still be open
        if key not in _open:
            physical = instance.physical_devices()[info.index]
            try:
                _open[key] = OpenDevice(instance, physical, info)
            except VulkanError as error:
                if not forking.is_child():
                    raise
                raise SetupError(
                    f"{info.name} does not open in a process that os.fork made ({error})",
                    forking.SPAWN,
                ) from error
            log.info("opened device %s", info)
        _open[key].free_forgotten()
        return _open[key]


def close_all() -> None:
    """Close every session, device and instance of this process."""
    with _lock:
        opened = [*_open.values(), *_lost]
        _open.clear()
        _lost.clear()
        for device in opened:
            device.close()
        if api.LIVE["VkDevice"] or any(device.is_stuck for device in opened):
            _instances.clear()  # live devices need their instance: the process's end frees both
            forking.skip_exit_handlers()  # the driver's must not meet its threads that still work
        while _instances:
            _instances.popitem()[1].close()


def _abandon_all() -> None:
    for device in (*_open.values(), *_lost):
        device.abandon()
    for registry in (_open, _lost, _instances):
        registry.clear()


atexit.register(close_all)
forking.in_child(_abandon_all)
