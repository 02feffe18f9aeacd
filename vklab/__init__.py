"""Load and run ONNX models on Vulkan devices, and look inside while they run.

Importing this package touches the standard library only; numpy, onnx and the Vulkan loader
are imported when a name below is first used.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# What is logged is shown only by a program that configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOME_OF = {
    "devices": "vklab.runtime.open_devices",
    "load": "vklab.runtime.loading",
    "measure": "vklab.runtime.observe.calibration",
    "from_torch": "vklab.pytorch.frontend",
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

if TYPE_CHECKING:
    # `as`: type checkers take these names as exported.
    # isort: off
    from vklab import distributed as distributed, llm as llm, settings as settings
    from vklab.errors import CheckError as CheckError
    from vklab.errors import DeviceLostError as DeviceLostError
    from vklab.errors import HostWarning as HostWarning
    from vklab.errors import ModelError as ModelError
    from vklab.errors import OutOfMemoryError as OutOfMemoryError
    from vklab.errors import PlanError as PlanError
    from vklab.errors import SetupError as SetupError
    from vklab.errors import ShaderError as ShaderError
    from vklab.errors import TimeoutError as TimeoutError
    from vklab.errors import UnsupportedOperatorError as UnsupportedOperatorError
    from vklab.errors import UnusedWarning as UnusedWarning
    from vklab.errors import VklabError as VklabError
    from vklab.errors import VulkanError as VulkanError
    from vklab.pytorch.frontend import from_torch as from_torch
    from vklab.runtime.bound.binding import DeviceBinding as DeviceBinding
    from vklab.runtime.bound.tensors import DeviceTensor as DeviceTensor
    from vklab.runtime.loading import load as load
    from vklab.runtime.observe.calibration import measure as measure
    from vklab.runtime.open_devices import devices as devices
    from vklab.runtime.session import Session as Session
    from vklab.types import DeviceInfo as DeviceInfo
    from vklab.types import TensorInfo as TensorInfo


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
