"""Access to the `vulkan` bindings, here only: structures, commands, results, counts of handles.

Works around the bindings' gaps in one place: keeps nested pointers alive, fills in sTypes and
names unknown results. Chooses no device and no memory. Visited by lab 02.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from vklab.base import forking
from vklab.errors import DeviceLostError, OutOfMemoryError, SetupError, TimeoutError, VulkanError

try:
    from vulkan import _vulkan as bindings

    ffi = bindings.ffi
    lib = bindings.lib
    LOADER_ERROR = ""
except OSError as error:  # importing the bindings opens the loader
    bindings = ffi = lib = None
    LOADER_ERROR = str(error)

__all__ = ["LIVE", "LOADER_ERROR", "VulkanObject", "bindings", "call", "check", "constant",
           "enumerate_all", "ffi", "flag_names", "lib", "live_handles", "make_version",
           "require_loader", "result_name", "struct", "structure_type", "text",
           "version_tuple"]  # fmt: skip

LIVE: Counter[str] = Counter()
_alive: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
_RESULTS = {
    value: name
    for name, value in (vars(bindings) if bindings else {}).items()
    if isinstance(value, int)
    and (
        name.startswith("VK_ERROR_")
        or name
        in ("VK_SUCCESS", "VK_TIMEOUT", "VK_NOT_READY", "VK_INCOMPLETE", "VK_SUBOPTIMAL_KHR")
    )
}
_ERRORS = {
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": OutOfMemoryError,
    "VK_ERROR_OUT_OF_HOST_MEMORY": OutOfMemoryError,
    "VK_ERROR_DEVICE_LOST": DeviceLostError,
    "VK_TIMEOUT": TimeoutError,
}


def require_loader() -> None:
    """Raise SetupError if the Vulkan loader could not be opened."""
    if lib is None:
        raise SetupError(
            f"the Vulkan loader cannot be opened ({LOADER_ERROR})",
            "apt-get install libvulkan1 mesa-vulkan-drivers   (Debian, Ubuntu); elsewhere "
            "install the Vulkan SDK or your GPU vendor's driver",
        )


# Constants to which the bindings give the number of another extension.
_CORRECTED = {"VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT": 1000184000}


@functools.cache
def constant(name: str) -> int:
    """Return the value of a VK_ constant of the headers; AttributeError for an unknown name."""
    # The bindings hold None under the old name of a constant that was promoted and renamed.
    stem = re.sub(r"_(EXT|KHR|NV|ARM|VALVE|INTEL)$", "", name)
    for candidate in (name, stem, f"{stem}_KHR", f"{stem}_EXT"):
        value = _CORRECTED.get(candidate, getattr(bindings, candidate, None))
        if value is not None:
            return int(value)
    raise AttributeError(f"the Vulkan bindings have no constant {name}")


def make_version(major: int, minor: int, patch: int = 0) -> int:
    """Return a version number packed into 32 bits, as VK_MAKE_API_VERSION does.

    Args:
        major: major version, as 1 in 1.3.275.
        minor: minor version, as 3.
        patch: patch version, as 275.
    """
    return (major << 22) | (minor << 12) | patch


def version_tuple(packed: int) -> tuple[int, int, int]:
    """Return major, minor and patch of a packed version number."""
    return (packed >> 22) & 0x7F, (packed >> 12) & 0x3FF, packed & 0xFFF


def text(chars: Any) -> str:
    """Return a C string as str; the empty string for a null pointer."""
    return "" if chars == ffi.NULL else ffi.string(chars).decode("utf-8", "replace")


@functools.cache  # there are thousands of names to compare with
def flag_names(value: int, prefix: str) -> frozenset[str]:
    """Return the lower-case names of the set bits, such as device_local."""
    return frozenset(
        name.removeprefix(prefix).removesuffix("_BIT").lower()
        for name, bit in vars(bindings).items()
        if name.startswith(prefix)
        and name.endswith("_BIT")
        and bit > 0
        and bit.bit_count() == 1
        and value & bit
    )


def _forget() -> None:
    if LIVE:  # a driver is loaded
        forking.skip_exit_handlers()
    LIVE.clear()


forking.in_child(_forget)

# ---------------------------------------------------------------------------------- structures


@functools.cache
def structure_type(name: str) -> int | None:
    """Return the VkStructureType of a structure, or None if the bindings have none for it."""
    body = name.removeprefix("Vk")
    # PhysicalDeviceVulkan12Features -> PHYSICAL_DEVICE_VULKAN_1_2_FEATURES
    spaced = re.sub(r"Vulkan(\d)(\d)", r"Vulkan_\1_\2_", body)
    words = (
        r"(?<=[a-z])(?=[A-Z0-9])"  # Buffer|Create, Maintenance|3
        r"|(?<=\d)(?=[A-Z](?!it))"  # 2|KHR, but 16Bit
        r"|(?<=[A-Z])(?=[A-Z][a-z])"  # ID|Properties
    )
    spaced = re.sub(words, "_", spaced).replace("__", "_").upper()
    try:
        return constant(f"VK_STRUCTURE_TYPE_{spaced}")
    except AttributeError:
        return None


def struct(name: str, **fields: Any) -> Any:
    """Build a zeroed structure, fill in sType and `fields`, and keep alive all data it points to.

    Values may be numbers, str, bytes, lists of numbers or of structures, and cdata; None leaves a
    field zero, as in the `pNext` that ends a chain.
    Raises AttributeError for an unknown field, LookupError for a structure without VkStructureType.
    """
    built = ffi.new(f"{name} *")
    members = dict(ffi.typeof(name).fields)
    keep: list[Any] = []
    if "sType" in members:
        s_type = structure_type(name)
        if s_type is None:
            raise LookupError(f"the Vulkan bindings have no VkStructureType for {name}")
        built.sType = s_type
    for field, value in fields.items():
        if field not in members:
            raise AttributeError(f"{name} has no field {field}; it has {', '.join(members)}")
        if value is not None:
            setattr(built, field, _convert(members[field].type, value, keep))
    _alive[built] = keep
    return built


def _convert(ctype: Any, value: Any, keep: list[Any]) -> Any:
    if isinstance(value, ffi.CData):
        keep.append(value)
        # `struct` returns pointers; a field of structure type takes the value itself.
        is_pointer = ffi.typeof(value).kind == "pointer"
        return value[0] if ctype.kind == "struct" and is_pointer else value
    if ctype.kind == "pointer" and isinstance(value, str):
        value = ffi.new("char[]", value.encode())
    elif ctype.kind == "pointer" and isinstance(value, (bytes, bytearray, memoryview)):
        keep.append(value)
        value = ffi.from_buffer(value)
    elif ctype.kind == "pointer" and isinstance(value, (list, tuple)):
        value = _array(ctype.item, value, keep)
    keep.append(value)
    return value


def _array(item: Any, values: Sequence[Any], keep: list[Any]) -> Any:
    converted = [_convert(item, value, keep) for value in values]
    kind = "void *" if item.cname == "void" else item
    return ffi.new(ffi.getctype(kind, "[]"), converted)


# ------------------------------------------------------------------------------------ commands


def result_name(result: int) -> str:
    """Return the name of a VkResult, or VkResult(number) for one unknown to the bindings."""
    return _RESULTS.get(result, f"VkResult({result})")


def check(command: str, result: int, detail: str = "") -> None:
    """Raise the error class for a VkResult, unless it is VK_SUCCESS.

    Args:
        command: name of the command, for the message.
        result: the VkResult that the command returned.
        detail: sizes, limits or the device, for the message.
    """
    if result == 0:
        return
    name = result_name(result)
    raise _ERRORS.get(name, VulkanError)(command, name, detail)


def call(command: str, *arguments: Any, detail: str = "") -> None:
    """Call a core command of the loader and raise VulkanError on failure.

    Args:
        command: name of the command.
        arguments: the command's arguments.
        detail: sizes, limits or the device, for the message.
    """
    result = getattr(lib, command)(*arguments)
    if result is not None:
        check(command, result, detail)


def enumerate_all(command: str | Callable[..., Any], ctype: str, *arguments: Any) -> list[Any]:
    """Call an enumeration command twice, for the count and for the items; return the items.

    Args:
        command: the name of a core command, or another command; its last two parameters are the
            count and the array.
        ctype: C type of one item.
        arguments: the arguments before the count.
    """
    count = ffi.new("uint32_t *")
    function = getattr(lib, command) if isinstance(command, str) else command
    for _ in range(8):  # VK_INCOMPLETE: the list has grown between the two calls
        function(*arguments, count, ffi.NULL)
        items = ffi.new(f"{ctype}[]", count[0])
        _stamp(ctype, items)
        result = function(*arguments, count, items)
        if result is None or result == 0:
            # Copies: a reference to a struct does not keep its array alive.
            return [ffi.new(f"{ctype} *", items[i])[0] for i in range(count[0])]
        if result_name(result) != "VK_INCOMPLETE":
            check(command if isinstance(command, str) else ctype, result)
    raise VulkanError(ctype, "VK_INCOMPLETE", "the list grew in each of 8 attempts")


def _stamp(ctype: str, items: Any) -> None:
    described = ffi.typeof(ctype)
    if described.kind == "struct" and "sType" in dict(described.fields):
        s_type = structure_type(ctype)
        for item in items:
            item.sType = s_type


def live_handles() -> dict[str, int]:
    """Return the number of open Vulkan objects of this process, by kind."""
    return {kind: count for kind, count in sorted(LIVE.items()) if count}


class VulkanObject:
    """Own one Vulkan handle: count it while it is open, destroy it exactly once."""

    kind = "VkObject"

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.owner = forking.owner()
        self._closed = False
        LIVE[self.kind] += 1

    def _destroy(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _destroy()")

    def close(self) -> None:
        """Destroy the handle; a second call does nothing, nor one in a forked child."""
        if getattr(self, "_closed", True) or forking.is_inherited(self.owner):
            return
        self._closed = True
        self._destroy()
        LIVE[self.kind] -= 1  # not reached if _destroy failed: the handle may be open

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
