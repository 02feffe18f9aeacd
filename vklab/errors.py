"""One tree of errors: each message states the failure, values and repair. Visited by lab 00.

VklabError
  SetupError                  no loader, driver or compiler: what to install on this system
    SettingError              a switch with a wrong value: its name and the values it takes
  VulkanError                 the command, the VkResult name, requested and available
    OutOfMemoryError   DeviceLostError   TimeoutError
  ShaderError                 file:line, variant, compiler text
  ModelError                  the node, the values, the rule
    UnsupportedOperatorError
      ValueNeededError        the value that must be known before a node can be planned
  PlanError                   a plan that its device cannot execute
  CheckError                  results that differ from the reference

VklabWarning is no error. HostWarning: nodes of a model run on the host. UnusedWarning: a file has
entries or tensors that nothing reads.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

__all__ = ["CheckError", "DeviceLostError", "HostWarning", "ModelError", "OutOfMemoryError",
           "PlanError", "SettingError", "SetupError", "ShaderError", "TimeoutError",
           "UnsupportedOperatorError", "UnusedWarning", "ValueNeededError", "VklabError",
           "VklabWarning", "VulkanError"]  # fmt: skip

_PACKAGE = str(Path(__file__).resolve().parent)


class VklabError(Exception):
    """Base class of the errors that vklab raises deliberately."""


class SetupError(VklabError):
    """A missing or unusable installation; `repair` is the command or step that mends it."""

    def __init__(self, message: str, repair: str = "") -> None:
        super().__init__(f"{message}\n  to repair: {repair}" if repair else message)
        self.repair = repair


class SettingError(SetupError, ValueError):
    """A switch or environment variable has a value that it does not take."""


class VulkanError(VklabError):
    """A Vulkan command returned an error code.

    Args:
        command: name of the command.
        result: name of the VkResult.
        detail: sizes, limits or the device, for the message.
    """

    def __init__(self, command: str, result: str, detail: str = "") -> None:
        super().__init__(f"{command} returned {result}" + (f": {detail}" if detail else ""))
        self.command = command
        self.result = result
        self.detail = detail

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.command, self.result, self.detail)


class OutOfMemoryError(VulkanError):
    """A device or the host is out of memory; the message gives requested and available bytes."""


class DeviceLostError(VulkanError):
    """A device stopped responding; the message names the last work submitted to it."""


class TimeoutError(VulkanError):  # noqa: A001  (Vulkan's word for it)
    """A wait for a device reached its time limit, which the message gives."""


class ShaderError(VklabError):
    """A shader does not compile or does not match its dispatch."""


class ModelError(VklabError):
    """A model or its inputs break a rule of ONNX."""


class UnsupportedOperatorError(ModelError):
    """A node that no device in use can run; the message gives the reason."""


class ValueNeededError(UnsupportedOperatorError):
    """A node that cannot be planned before the value named `value` is known."""

    def __init__(self, message: str, value: str = "") -> None:
        super().__init__(message)
        self.value = value


class PlanError(VklabError):
    """A plan that its device cannot execute."""


class CheckError(VklabError):
    """Results that differ from the reference; the message lists the first differences."""


class VklabWarning(UserWarning):
    """Base class of the warnings that vklab issues deliberately; `issue` issues one."""

    @classmethod
    def issue(cls, text: str) -> None:
        """Issue the warning, in the log too, at the first caller's line outside of the package."""
        logging.getLogger("vklab").warning("%s", text)
        frame, level = sys._getframe(1), 2
        while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
            frame, level = frame.f_back, level + 1
        warnings.warn(text, cls, stacklevel=level)


class HostWarning(VklabWarning):
    """Nodes run on the host, or a graph stays in PyTorch; the message gives the reasons."""


class UnusedWarning(VklabWarning):
    """A file has entries or tensors that nothing reads; the message names them."""
