"""Timestamp queries: times on the device's clock at which recorded work was complete.

Reads that clock and the host's at one moment where the driver can; `runtime.observe` converts
between them. Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.vulkan import api
from vklab.vulkan.device import Device, DeviceObject


def ticks_to_ns(ticks: Sequence[int], period_ns: float, valid_bits: int) -> list[float]:
    """Convert timestamps into nanoseconds since the first; the counter may wrap around once.

    Args:
        ticks: timestamps as the device wrote them.
        period_ns: nanoseconds per tick, the limit timestampPeriod.
        valid_bits: width of the counter in bits.

    Source: Vulkan 1.3, section 'Timestamp Queries'.
    """
    if not ticks:
        return []
    mask = (1 << valid_bits) - 1
    return [((tick - ticks[0]) & mask) * period_ns for tick in ticks]


class TimestampQueries(DeviceObject):
    """A pool of `count` timestamps. Vulkan: vkCreateQueryPool"""

    kind = "VkQueryPool"

    def __init__(self, device: Device, count: int) -> None:
        self.count = count
        info = api.struct(
            "VkQueryPoolCreateInfo",
            queryType=api.constant("VK_QUERY_TYPE_TIMESTAMP"),
            queryCount=count,
        )
        super().__init__(device, info)

    def ticks(self, count: int | None = None) -> list[int]:
        """Read the first `count` timestamps of complete work. Vulkan: vkGetQueryPoolResults"""
        count = self.count if count is None else count
        values = api.ffi.new("uint64_t[]", count)
        flags = api.constant("VK_QUERY_RESULT_64_BIT")
        self.device.call(
            "vkGetQueryPoolResults",
            self.handle,
            0,
            count,
            8 * count,
            values,
            8,
            flags,
        )
        return list(values)

    def nanoseconds(self, ticks: Sequence[int]) -> list[float]:
        """Convert timestamps of this device into nanoseconds since the first."""
        period = float(self.device.info.limits["timestampPeriod"])  # type: ignore[arg-type]
        valid = self.device.compute_queue.family.timestamp_valid_bits
        return ticks_to_ns(ticks, period, valid or 64)


def calibrate(device: Device) -> tuple[int, int, int] | None:
    """Return one moment on the device's clock (ticks) and the host's (ns), and the deviation (ns).

    Returns None if the driver lacks VK_EXT_calibrated_timestamps or the host's clock, which is
    `time.monotonic_ns()`. Vulkan: vkGetCalibratedTimestampsEXT
    """
    if "VK_EXT_calibrated_timestamps" not in device.extensions:
        return None
    domains = api.enumerate_all(
        device.instance.command("vkGetPhysicalDeviceCalibrateableTimeDomainsEXT"),
        "VkTimeDomainEXT",
        device.physical,
    )
    clocks = [api.constant(f"VK_TIME_DOMAIN_{name}_EXT") for name in ("DEVICE", "CLOCK_MONOTONIC")]
    if not set(clocks) <= set(domains):
        return None
    infos = api.ffi.new("VkCalibratedTimestampInfoEXT[2]")
    for info, domain in zip(infos, clocks, strict=True):
        info.sType = api.structure_type("VkCalibratedTimestampInfoEXT")
        info.timeDomain = domain
    stamps, deviation = api.ffi.new("uint64_t[2]"), api.ffi.new("uint64_t *")
    device.call("vkGetCalibratedTimestampsEXT", 2, infos, stamps, deviation)
    return int(stamps[0]), int(stamps[1]), int(deviation[0])
