"""The table of switches; each is an environment variable, a `with settings(...)` and a CLI flag.

Decides nothing itself: the code that obeys a switch calls `get("NAME")` when the value matters.
Visited by lab 00.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SETTINGS", "Setting", "get", "plan_switches", "settings"]

Value = str | int | float | bool


@dataclass(frozen=True)
class Setting:
    """One switch: its default (which fixes its type) and its effect.

    `affects_plans` is false for a switch that changes how a plan is made, executed or inspected,
    and never the plan itself.
    """

    name: str
    default: Value
    help: str
    affects_plans: bool = field(default=True, kw_only=True)

    @property
    def variable(self) -> str:
        """Return the name of the environment variable."""
        return f"VKLAB_{self.name}"

    def parse(self, text: str) -> Value:
        """Convert the text of an environment variable or flag into a value of the switch's type.

        Raises ValueError for a text of another type.
        """
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
            kind = "finite number" if isinstance(self.default, float) else "whole number"
            raise ValueError(f"{self.variable}={text!r} is not a {kind}") from None


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("DEBUG", 0, "1: print decisions; 2: print one line per dispatch of a profiled run",
                affects_plans=False),
        Setting("VALIDATE", False, "load the Khronos validation layer; its messages are errors",
                affects_plans=False),
        Setting("CHECK", "", "compare runs with ONNX Runtime: 'outputs', or 'nodes' one by one",
                affects_plans=False),
        Setting("DEVICE", "", "device to use: index, or part of its name", affects_plans=False),
        Setting("SHADERS", "", "folder that is searched for shaders before the package's own"),
        Setting("SLANGC", "", "path of the slangc compiler", affects_plans=False),
        Setting("LABS", "", "folder of labs used instead of the project's own labs/",
                affects_plans=False),
        Setting("CACHE", "", "folder of the shader and pipeline caches", affects_plans=False),
        Setting("DUMP", "", "folder that receives the SPIR-V and the plan of each loaded model",
                affects_plans=False),
        Setting("TIMEOUT", 60.0, "seconds until a wait for a device fails", affects_plans=False),
        Setting("MEMORY_LIMIT", 0.95, "share of a heap's budget that may be allocated",
                affects_plans=False),
        Setting("DISABLE_ALIASING", False, "give every activation memory of its own"),
        Setting("DISABLE_REPLAY", False, "record the command buffer again on every run",
                affects_plans=False),
        Setting("DISABLE_PUSH_DESCRIPTORS", False, "use descriptor sets from a pool",
                affects_plans=False),
        Setting("DISABLE_POLLING", False, "block on the fence at once instead of polling first",
                affects_plans=False),
        Setting("DISABLE_DIRECT_IO", False, "stage inputs and outputs through copies"),
        Setting("DISABLE_SHARED_MEMORY", False, "the host copies transfers between devices",
                affects_plans=False),
        Setting("DISABLE_OVERLAP", False, "run nothing on the host while a device runs"),
        Setting("DISABLE_DEVICE_ORDER", False, "the host waits between stages of one device"),
        Setting("DISABLE_STAGING_RING", False, "transfer whole values in host memory, not pieces"),
        Setting("DISABLE_EARLY_MOVES", False, "let values leave a device only when a stage ends"),
        Setting("DISABLE_DMA_BUF", False, "no device reads the memory of another",
                affects_plans=False),
        Setting("STAGING_SLOT_BYTES", 4 << 20, "most bytes in one slot of a staging ring",
                affects_plans=False),
        Setting("DISABLE_NARROW", False, "store 8 and 16-bit types in 32 bits, as some devices do"),
        Setting("KEPT_PLANS", 0, "plans kept, one per input shape; 0: 8, under upper bounds 64",
                affects_plans=False),
        Setting("FALLBACK", True, "run nodes without a kernel on the host; 0: raise an error"),
        Setting("HOST", "", "operators or node names, by commas, with *: run these on the host"),
        Setting("ONLY", "", "like HOST: run only these on Vulkan, all others on the host"),
        Setting("KEEP_FLOAT32", "", "operators or node names, by commas, with *: not in float16"),
        Setting("DISABLE_PASSES", "", "passes or fusions to leave out, by commas; all: no pass"),
        Setting("DISABLE_FUSION", False, "one dispatch for each operator, none fused"),
        Setting("DISABLE_REORDER", False, "finish one branch before the next begins"),
        Setting("DISABLE_IN_PLACE", False, "write no result over one of its operands"),
        Setting("DISABLE_PREPACK", False, "read weights in the model's layout, not repacked"),
        Setting("DISABLE_MEASURED", False, "estimate device speeds, ignoring measured ones"),
        Setting("DISABLE_VARIANTS", False, "use the kernels that run on every device"),
        Setting("DISABLE_CACHE", False, "compile shaders and pipelines anew", affects_plans=False),
    )
}  # fmt: skip

_overrides: contextvars.ContextVar[dict[str, Value]] = contextvars.ContextVar(
    "vklab_settings", default={}  # noqa: B039  (never mutated, only replaced)
)
# The dictionary inside os.environ: a run reads a handful of switches, and os.environ itself decodes
# at every look-up and raises KeyError inside for an unset variable.
_environment: Mapping[Any, Any] = os.environ._data  # type: ignore[attr-defined]
_keys = {name: os.environ.encodekey(setting.variable) for name, setting in SETTINGS.items()}
# The last text of each variable, as _environment holds it, and the value parsed from it.
_parsed: dict[str, tuple[Any, Value]] = {}


def get(name: str) -> Value:
    """Return the value of a switch: from `with settings(...)`, the environment, or its default."""
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    text = _environment.get(_keys[name])
    if not text:
        return SETTINGS[name].default
    last = _parsed.get(name)
    if last is None or last[0] != text:
        last = _parsed[name] = text, SETTINGS[name].parse(os.environ.decodevalue(text))
    return last[1]


def plan_switches() -> dict[str, Value]:
    """Return the present value of every switch that affects plans, by name."""
    return {name: get(name) for name, setting in SETTINGS.items() if setting.affects_plans}


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
