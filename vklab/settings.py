"""One table of switches; each is an environment variable, a `with settings(...)` and a CLI flag.

Decides nothing itself: the code that obeys a switch asks `get("NAME")` at the moment it matters.
Visited by lab 00.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

__all__ = ["SETTINGS", "Setting", "check_disabled", "get", "names", "settings"]

Value = str | int | float | bool


@dataclass(frozen=True)
class Setting:
    """One switch: its default (which fixes its type) and what it does."""

    name: str
    default: Value
    help: str

    @property
    def variable(self) -> str:
        """Return the name of the environment variable."""
        return f"VKLAB_{self.name}"

    def parse(self, text: str) -> Value:
        """Turn the text of an environment variable or flag into a value."""
        if isinstance(self.default, bool):
            lowered = text.strip().lower()
            if lowered in ("1", "true", "yes", "on"):
                return True
            if lowered in ("0", "false", "no", "off", ""):
                return False
            raise ValueError(f"{self.variable}={text!r} is not a switch; use 1 or 0")
        try:
            value = type(self.default)(text)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError("waits and limits are finite")
            return value
        except ValueError:
            kind = type(self.default).__name__
            raise ValueError(f"{self.variable}={text!r} is not of type {kind}") from None


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("DEBUG", 0, "1: what was decided; 2: one line per dispatch of a profiled run"),
        Setting("VALIDATE", False, "load the Khronos validation layer; its messages are errors"),
        Setting("CHECK", "", "compare runs with ONNX Runtime: 'outputs', or 'nodes' one by one"),
        Setting("DEVICE", "", "device to use: index, or part of its name"),
        Setting("SHADERS", "", "folder that is searched for shaders before the package's own"),
        Setting("SLANGC", "", "path of the slangc compiler"),
        Setting("LABS", "", "folder of labs used instead of the project's own labs/"),
        Setting("CACHE", "", "folder of the shader and pipeline caches"),
        Setting("DUMP", "", "folder that receives the SPIR-V and the plan of what is loaded"),
        Setting("TIMEOUT", 60.0, "seconds until a wait for a device is given up"),
        Setting("MEMORY_LIMIT", 0.95, "share of a heap's budget that may be allocated"),
        Setting("DISABLE_ALIASING", False, "give every activation memory of its own"),
        Setting("DISABLE_REPLAY", False, "record the command buffer again on every run"),
        Setting("DISABLE_PUSH_DESCRIPTORS", False, "use descriptor sets from a pool"),
        Setting("DISABLE_POLLING", False, "block on the fence at once instead of polling first"),
        Setting("DISABLE_DIRECT_IO", False, "stage inputs and outputs through copies"),
        Setting("DISABLE_SHARED_MEMORY", False, "copy what moves between devices"),
        Setting("DISABLE_OVERLAP", False, "no part on the host runs beside one on a device"),
        Setting("DISABLE_DEVICE_ORDER", False, "the host waits between stages of one device"),
        Setting("DISABLE_STAGING_RING", False, "move all between devices where the host sees it"),
        Setting("DISABLE_EARLY_MOVES", False, "let values leave a device only when a stage ends"),
        Setting("DISABLE_DMA_BUF", False, "no device reads the memory of another"),
        Setting("STAGING_SLOT_BYTES", 4 << 20, "most bytes of a piece of what moves in pieces"),
        Setting("DISABLE_NARROW", False, "store 8 and 16-bit types in 32 bits, as some devices do"),
        Setting("KEPT_PLANS", 0, "shapes whose plans are kept; 0: 8, under upper bounds 64"),
        Setting("FALLBACK", True, "run on the host what no kernel can do; 0: an error instead"),
        Setting("HOST", "", "operators or node names, by commas, with *: run these on the host"),
        Setting("ONLY", "", "operators or node names: run only these on Vulkan, all others not"),
        Setting("KEEP_FLOAT32", "", "operators or node names, by commas, with *: not in float16"),
        Setting("DISABLE_PASSES", "", "passes or fusions to leave out, by commas; all: no pass"),
        Setting("DISABLE_FUSION", False, "one dispatch for each operator, as before fusion"),
        Setting("DISABLE_REORDER", False, "walk one branch to its end before the next begins"),
        Setting("DISABLE_IN_PLACE", False, "write no result over the operand that it replaces"),
        Setting("DISABLE_PREPACK", False, "read weights as the model has them, not laid out anew"),
        Setting("DISABLE_MEASURED", False, "guess how fast devices are, whatever was measured"),
        Setting("DISABLE_VARIANTS", False, "use the kernels that are right everywhere"),
        Setting("DISABLE_CACHE", False, "compile shaders and pipelines afresh"),
    )
}

_overrides: contextvars.ContextVar[dict[str, Value]] = contextvars.ContextVar(
    "vklab_settings", default={}  # noqa: B039  (never mutated, only replaced)
)


def get(name: str) -> Value:
    """Return the value of a switch: a `with settings(...)`, else the environment, else default."""
    setting = SETTINGS[name]
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    text = os.environ.get(setting.variable)
    return setting.default if text is None or text == "" else setting.parse(text)


def names(switch: str) -> frozenset[str]:
    """Return the names that the text of a switch lists, separated by commas."""
    return frozenset(filter(None, map(str.strip, str(get(switch)).split(","))))


def check_disabled(known: Collection[str]) -> None:
    """Raise ValueError for a name in DISABLE_PASSES that is neither known nor "all"."""
    unknown = sorted(names("DISABLE_PASSES") - {*known, "all"})
    if unknown:
        raise ValueError(f"unknown pass {unknown[0]!r} in VKLAB_DISABLE_PASSES; choose from all, "
                         f"{', '.join(sorted(known))}")  # fmt: skip


@contextlib.contextmanager
def settings(**values: Value) -> Iterator[None]:
    """Set switches inside a `with` block; names as in the table, upper or lower case.

    Raises KeyError for an unknown switch and ValueError for a value of the wrong type.
    """
    checked: dict[str, Value] = {}
    for name, value in values.items():
        setting = SETTINGS.get(name.upper())
        if setting is None:
            raise KeyError(f"no switch {name!r}; there are {', '.join(sorted(SETTINGS))}")
        checked[setting.name] = setting.parse(str(value))
    token = _overrides.set({**_overrides.get(), **checked})
    try:
        yield
    finally:
        _overrides.reset(token)
