"""Table of all switches; each is an environment variable, a `with settings(...)` and a CLI flag.

Decides nothing itself: the code that obeys a switch calls `get("NAME")` when the value matters. A
session keeps the switches that affect plans as they are when it is loaded. Visited by lab 00.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vklab.errors import SettingError

__all__ = ["SETTINGS", "Setting", "get", "names", "plan_switches", "settings", "within"]

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

        Raises SettingError for a text of another type, or a number out of range.
        """
        if isinstance(self.default, bool):
            lowered = text.strip().lower()
            if lowered in ("1", "true", "yes", "on"):
                return True
            if lowered in ("0", "false", "no", "off", ""):
                return False
            raise SettingError(f"{self.variable}={text!r} is not a switch; use 1 or 0")
        most = {"DEBUG": 2, "MEMORY_LIMIT": 1, "REFERENCE_MEMORY": 1}.get(self.name, 10**9)
        with contextlib.suppress(ValueError):
            value = type(self.default)(text)
            if isinstance(value, str) or 0 <= value <= most:
                return value
        kind = "finite number" if isinstance(self.default, float) else "whole number"
        raise SettingError(f"{self.variable}={text!r} is not a {kind} from 0 to {most}")


# Name, default and purpose of the switches that affect how plans are made, executed or
# inspected ...
_OF_RUNS: tuple[tuple[str, Value, str], ...] = (
    ("DEBUG", 0, "1: print decisions; 2: print one line per dispatch of a profiled run"),
    ("VALIDATE", False, "load the Khronos validation layer; its messages are errors"),
    ("CHECK", "", "compare runs with ONNX Runtime: 'outputs', or 'nodes' one by one"),
    ("DEVICE", "", "device to use: index, or part of its name"),
    ("SLANGC", "", "path of the slangc compiler"),
    ("LABS", "", "folder of labs used instead of the project's own labs/"),
    ("CACHE", "", "folder of the shader and pipeline caches"),
    ("DUMP", "", "folder that receives the SPIR-V and the plan of each loaded model"),
    ("TIMEOUT", 60.0, "seconds until a wait for a device fails"),
    ("REFERENCE_TIMEOUT", 600.0, "seconds until a check stops ONNX Runtime"),
    ("REFERENCE_MEMORY", 0.75, "share of the memory that ONNX Runtime gets in a check (Linux)"),
    ("LOOP_LIMIT", 1 << 16, "turns after which a Loop of a model counts as endless"),
    ("MEMORY_LIMIT", 0.95, "share of a heap's budget that may be allocated"),
    ("DISABLE_REPLAY", False, "record the command buffer again on every run"),
    ("DISABLE_PUSH_DESCRIPTORS", False, "use descriptor sets from a pool"),
    ("DISABLE_POLLING", False, "block on the fence at once instead of polling first"),
    ("DISABLE_EVENTS", False, "poll a fence, which interrupts the host, not an event"),
    ("DISABLE_SHARED_MEMORY", False, "the host copies transfers between devices"),
    ("DISABLE_OVERLAP", False, "run nothing on the host while a device runs"),
    ("DISABLE_DMA_BUF", False, "no device reads the memory of another"),
    ("STAGING_SLOT_BYTES", 4 << 20, "most bytes in one slot of a staging ring"),
    ("KEPT_PLANS", 0, "plans kept, one per input shape; 0: 8, under upper bounds 64"),
    ("THREADS", 0, "most threads of a node on the host, and of compiling; 0: one a core"),
    ("DISABLE_CACHE", False, "compile shaders and pipelines anew"),
)  # fmt: skip
# ... and of those that affect the plan itself.
_OF_PLANS: tuple[tuple[str, Value, str], ...] = (
    ("SHADERS", "", "folder that is searched for shaders before the package's own"),
    ("DISABLE_ALIASING", False, "give every activation memory of its own"),
    ("DISABLE_DIRECT_IO", False, "stage inputs and outputs through copies"),
    ("DISABLE_DEVICE_ORDER", False, "the host waits between stages of one device"),
    ("DISABLE_EARLY_MOVES", False, "let values leave a device only when a stage ends"),
    ("DISABLE_STAGING_RING", False, "transfer whole values in host memory, not pieces"),
    ("DISABLE_NARROW", False, "store 8 and 16-bit types in 32 bits, as some devices do"),
    ("FALLBACK", True, "run nodes without a kernel on the host; 0: refuse the model"),
    ("HOST", "", "operators or node names, by commas, with *: run these on the host"),
    ("ONLY", "", "like HOST: run only these on Vulkan, all others on the host"),
    ("KEEP_FLOAT32", "", "operators or node names, by commas, with *: not in float16"),
    ("DISABLE_PASSES", "", "passes, fusions or kernels to leave out, by commas; all: no pass"),
    ("DISABLE_FUSION", False, "one dispatch for each operator, none fused"),
    ("DISABLE_REORDER", False, "finish one branch before the next begins"),
    ("DISABLE_IN_PLACE", False, "write no result over one of its operands"),
    ("DISABLE_PREPACK", False, "read weights in the model's layout, not repacked"),
    ("DISABLE_MEASURED", False, "estimate device speeds, ignoring measured ones"),
    ("DISABLE_TUNED", False, "choose kernels by the time model, ignoring `vklab tune`"),
    ("DISABLE_TEMPLATES", False, "plan every new shape in full, not from a trace"),
    ("DISABLE_INTEGER_DOT", False, "multiply int8 in float32, not by dot products"),
    ("DISABLE_STEP_ATTENTION", False, "compute one step's attention as that of many"),
    ("DISABLE_COUNTED_PARTS", False, "add up parts in a dispatch, not in the last workgroup"),
    ("DISABLE_VARIANTS", False, "use the kernels that run on every device"),
    ("PRECISION", "", "of products: bf16x3, half-sums; of rows times blocks: int8, exact"),
    ("VARIANT", "", "kernel of all products that allow it, as `vklab tune` names them"),
)  # fmt: skip
SETTINGS = {
    row[0]: Setting(*row, affects_plans=rows is _OF_PLANS)
    for rows in (_OF_RUNS, _OF_PLANS)
    for row in rows
}

_overrides: contextvars.ContextVar[dict[str, Value]] = contextvars.ContextVar(
    "vklab_settings",
    default={},  # noqa: B039  (never mutated, only replaced)
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


def names(switch: str) -> frozenset[str]:
    """Return the names that the text of a switch lists, separated by commas."""
    return frozenset(filter(None, map(str.strip, str(get(switch)).split(","))))


@contextlib.contextmanager
def settings(**values: Value) -> Iterator[None]:
    """Set switches inside a `with` block; names as in the table, upper or lower case.

    A session that is loaded in the block keeps the switches that affect its plans, such as
    FALLBACK; others, such as TIMEOUT, count where they are used, so runs belong in the block too.

    Raises KeyError for an unknown switch and SettingError, a ValueError, for a wrong value.
    """
    checked: dict[str, Value] = {}
    for name, value in values.items():
        setting = SETTINGS.get(name.upper())
        if setting is None:
            raise KeyError(f"no switch {name!r}; there are {', '.join(sorted(SETTINGS))}")
        checked[setting.name] = setting.parse(str(value))
    with within(_overrides, {**_overrides.get(), **checked}):
        yield


@contextlib.contextmanager
def within(variable: contextvars.ContextVar[Any], value: Any) -> Iterator[None]:
    """Give a context variable a value inside a `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
