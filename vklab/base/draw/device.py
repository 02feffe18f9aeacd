"""A device as pairs of text and as a table: the facts that decide what runs on it.

Visited by lab 02.
"""

from __future__ import annotations

from typing import Any

from vklab.base import draw


def rows(info: Any) -> list[tuple[str, str]]:
    """Return the most important facts of a DeviceInfo as pairs of text."""
    queues = "; ".join(
        f"{family.index}: {family.queue_count} x {' '.join(sorted(family.flags))}"
        for family in info.queue_families
    )
    return [
        ("name", info.name),
        ("type", info.type),
        ("vendor", f"{info.vendor} (0x{info.vendor_id:04x})"),
        ("driver", info.driver),
        ("Vulkan", ".".join(map(str, info.api_version))),
        ("device-local memory", f"{info.memory_bytes / 2**20:.0f} MiB"),
        ("queue families", queues),
        ("subgroup size", str(info.subgroup_size)),
        ("shared memory", f"{info.limit('maxComputeSharedMemorySize') // 1024} KiB"),
        ("invocations a workgroup", str(info.limit("maxComputeWorkGroupInvocations"))),
        ("usable", info.refusal or "yes"),
    ]


def html(info: Any) -> str:
    """Return the facts of a DeviceInfo as an HTML table."""
    return draw.table_html("Vulkan device", ("property", "value"), rows(info))
