"""Command buffers of programs whose wait polls: they set an event in place of a fence's interrupt.

Decides for which devices; `vulkan.event` has the objects. Visited by lab 06.
"""

from __future__ import annotations

from vklab import settings
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.event import EventCommands


def class_for(opened: OpenDevice) -> type[EventCommands] | None:
    """Return the class of command buffers for a device; None where a fence is as good.

    A CPU device interrupts nobody, and devices of the portability subset may lack events.
    """
    if opened.info.is_cpu or "VK_KHR_portability_subset" in opened.device.extensions:
        return None
    if settings.get("DISABLE_EVENTS") or settings.get("DISABLE_POLLING"):
        return None
    return EventCommands
