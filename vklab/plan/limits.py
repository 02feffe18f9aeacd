"""Check dispatches against the limits of a device, before its driver sees them.

A driver may crash on a dispatch beyond its limits. Visited by labs 02 and 04.

Source: Vulkan 1.3, section "Limits"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vklab.errors import PlanError
from vklab.types import DeviceInfo, Dispatch

# llvmpipe (Mesa 22.3) ends the loops of an invocation after 65535 iterations in all, without an
# error: longer loops would give wrong results.
LLVMPIPE_ITERATIONS = 65535
# A kernel reads integer push constants as int or uint.
WORDS = range(-(1 << 31), 1 << 32)


def arena_limit_bytes(info: DeviceInfo) -> int:
    """Return the largest size in bytes of one buffer of a device."""
    names = ("maxMemoryAllocationSize", "maxBufferSize")
    limits = [info.limit(name) for name in names if name in info.limits]
    return min([limit for limit in limits if limit > 0], default=1 << 30)


def check(dispatches: Iterable[Dispatch], info: DeviceInfo) -> None:
    """Raise PlanError for a dispatch beyond a limit; the error names the value and the limit."""
    for dispatch in dispatches:
        for problem in _broken(dispatch, info):
            raise PlanError(f"{dispatch}: {problem}")


def _broken(dispatch: Dispatch, info: DeviceInfo) -> Iterator[str]:
    groups = info.limits["maxComputeWorkGroupCount"]
    assert isinstance(groups, tuple)
    if any(count > most for count, most in zip(dispatch.workgroups, groups, strict=True)):
        yield f"{dispatch.workgroups} workgroups, {info.name} launches {groups}"
    invocations = dispatch.constant_values.get("WORKGROUP", 0)
    most = info.limit("maxComputeWorkGroupInvocations")
    if invocations > most:
        yield f"{invocations} invocations a workgroup, {info.name} has {most}"
    if "llvmpipe" in info.driver and dispatch.iterations > LLVMPIPE_ITERATIONS:
        yield (
            f"an invocation loops {dispatch.iterations} times, {info.name} stops at "
            f"{LLVMPIPE_ITERATIONS}"
        )
    for name, value in dispatch.push:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and not WORDS.start <= number < WORDS.stop:
                yield f"{name}={number} does not fit into 32 bits"
    most = info.limit("maxStorageBufferRange")
    for name, tensor in dispatch.reads + dispatch.writes:
        if tensor.size_bytes > most:
            yield (
                f"{tensor} at {name} is {tensor.size_bytes} bytes, {info.name} binds at most "
                f"{most} (maxStorageBufferRange)"
            )
