"""banner: the device in use, at the top of every lab, with a warning if it is a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from vklab.base import draw
from vklab.errors import SetupError
from vklab.runtime import open_devices

__all__ = ["Banner", "banner"]


@dataclass(frozen=True)
class Banner:
    """One line about the device that this lab runs on."""

    text: str
    warning: str = ""

    def __str__(self) -> str:
        return self.text + (f"\n{self.warning}" if self.warning else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = "#E69F00" if self.warning else "#0072B2"
        warning = f"<div>⚠ {escape(self.warning)}</div>" if self.warning else ""
        return (
            f'<div style="border:.1em solid {colour};border-left-width:.4em;padding:.2em .9em">'
            f"<strong>{escape(self.text)}</strong>{warning}</div>"
        )


def banner() -> Banner:
    """Return the device that vklab uses now, or the repair if there is none."""
    try:
        info = open_devices.select()
    except SetupError as error:
        return Banner("no Vulkan device can be used", str(error))
    version = ".".join(map(str, info.api_version[:2]))
    memory = draw.bytes_text(info.memory_bytes)
    text = f"device {info.index}: {info.name} ({info.type}, Vulkan {version}, {memory})"
    if not info.is_cpu:
        return Banner(text)
    return Banner(
        text,
        "CPU DEVICE: this is your processor playing a GPU. Every result is real; "
        "its times say nothing about a GPU.",
    )
