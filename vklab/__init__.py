"""Load and run ONNX models on Vulkan devices, and look inside while they run.

Importing this package touches the standard library only; numpy, onnx and the Vulkan loader
are imported when a name below is first used. Type checkers and editors read `__init__.pyi` instead.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from vklab.base import forward
from vklab.base.version import __version__

# What is logged is shown only by a program that configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOME_OF = {
    "devices": "vklab.runtime.open_devices",
    "load": "vklab.runtime.loading",
    "measure": "vklab.runtime.observe.calibration",
    "from_torch": "vklab.apps.pytorch.frontend",
    "Session": "vklab.runtime.session",
    **dict.fromkeys(("DeviceBinding", "DeviceTensor"), "vklab.runtime.bound.binding"),
    "TensorInfo": "vklab.types",
    "DeviceInfo": "vklab.types",
    **dict.fromkeys(
        ("VklabError", "CheckError", "SetupError", "VulkanError", "OutOfMemoryError",
         "DeviceLostError", "TimeoutError", "ShaderError", "ModelError",
         "UnsupportedOperatorError", "PlanError", "HostWarning", "UnusedWarning"),
        "vklab.errors",
    ),
}  # fmt: skip

__all__ = [*_HOME_OF, "settings", "__version__"]  # noqa: PLE0604  (the table above is the list)

# Public names of modules in vklab/apps.
_PUBLIC = ("conformance", "distributed", "llm", "onnx_backend", "pytorch", "quantization")
# Names that modules had before they moved, for one release.
_MOVED = {
    **{name: f"apps.{name}" for name in (*_PUBLIC, "bootstrap", "cli", "doctor")},
    **{name: f"base.{name}" for name in ("draw", "forking", "store", "trace")},
    "backends": "apps.compare", "bench": "apps.compare.speed",
    **{f"apps.compare.speed.{old}": f"apps.compare.models.{new}" for old, new in (
        ("memory", "memory"), ("mini_classifier", "exporting"), ("models", "graphs"),
        ("products", "products"), ("recorded", "recorded"))},
}  # fmt: skip


def _new_name(old: str) -> str:
    module, colon, inner = old.partition(":")
    package, _, name = module.partition(".")
    if package != "vklab":
        return ""
    for before, now in _MOVED.items():  # in order: what moved twice has a row for each move
        if f"{name}.".startswith(f"{before}."):
            name = now + name[len(before) :]
    return f"vklab.{name}{colon}{inner}" if f"vklab.{name}" != module else ""


forward.install(_new_name)


def __getattr__(name: str) -> Any:
    if name in ("distributed", "llm", "settings"):  # modules that need no import statement
        return importlib.import_module(f"vklab.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'vklab' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
