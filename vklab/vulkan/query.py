"""Timestamp queries: when, on the device's clock, the work before a point was done.

Calibration ties that clock to the host's where the driver can. Visited by labs 12 and 18.
"""

from __future__ import annotations

from collections.abc import Sequence

from vklab.vulkan import api
from vklab.vulkan.device import Device, DeviceObject

__all__ = ["TimestampQueries", "calibrate", "ticks_to_ns"]


def ticks_to_ns(ticks: Sequence[int], period_ns: float, valid_bits: int) -> list[float]:
    """Turn raw timestamps into nanoseconds since the first one, across a wrap of the counter."""
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
        """Read raw timestamps; the work must be complete. Vulkan: vkGetQueryPoolResults"""
        count = self.count if count is None else count
        values = api.ffi.new("uint64_t[]", count)
        flags = api.constant("VK_QUERY_RESULT_64_BIT")
        self.device.call(
            "vkGetQueryPoolResults",
            self.handle, 0, count, 8 * count, values, 8, flags,
        )  # fmt: skip
        return list(values)

    def nanoseconds(self, ticks: Sequence[int]) -> list[float]:
        """Turn raw timestamps of this device into nanoseconds since the first."""
        period = float(self.device.info.limits["timestampPeriod"])  # type: ignore[arg-type]
        valid = self.device.compute_queue.family.timestamp_valid_bits
        return ticks_to_ns(ticks, period, valid or 64)


def calibrate(device: Device) -> tuple[int, int, int] | None:
    """Return one moment on the device's clock (ticks) and the host's (ns), and the deviation (ns).

    None where VK_EXT_calibrated_timestamps or the host's clock is missing. The host's clock is
    `time.monotonic_ns()`. Vulkan: vkGetCalibratedTimestampsEXT
    """
    if "VK_EXT_calibrated_timestamps" not in device.extensions:
        return None
    domains = api.enumerate_all(
        device.instance.command("vkGetPhysicalDeviceCalibrateableTimeDomainsEXT"),
        "VkTimeDomainEXT",
        device.physical,
    )
    clocks = [
        api.constant(f"VK_TIME_DOMAIN_{name}_EXT") for name in ("DEVICE", "CLOCK_MONOTONIC")
    ]
    if not set(clocks) <= set(domains):
        return None
    infos = api.ffi.new("VkCalibratedTimestampInfoEXT[2]")
    for info, domain in zip(infos, clocks, strict=True):
        info.sType = api.structure_type("VkCalibratedTimestampInfoEXT")
        info.timeDomain = domain
    stamps, deviation = api.ffi.new("uint64_t[2]"), api.ffi.new("uint64_t *")
    device.call("vkGetCalibratedTimestampsEXT", 2, infos, stamps, deviation)
    return int(stamps[0]), int(stamps[1]), int(deviation[0])
