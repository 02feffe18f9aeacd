"""The one tree of errors. Every message says what happened, with which values, and what to do.

VklabError
  SetupError                  no loader, driver or compiler: what to install on this system
  VulkanError                 the command, the VkResult name, asked and available
    OutOfMemoryError   DeviceLostError   TimeoutError
  ShaderError                 file:line, variant, compiler text
  ModelError                  the node, the values, the rule
    UnsupportedOperatorError
      ValueNeededError        the value that has to be known before a node can be planned
  PlanError                   a plan that a device cannot hold
  CheckError                  results that differ from the reference
"""

from __future__ import annotations

__all__ = [
    "CheckError",
    "DeviceLostError",
    "ModelError",
    "OutOfMemoryError",
    "PlanError",
    "SetupError",
    "ShaderError",
    "TimeoutError",
    "UnsupportedOperatorError",
    "ValueNeededError",
    "VklabError",
    "VulkanError",
]


class VklabError(Exception):
    """Base of every error that vklab raises on purpose."""


class SetupError(VklabError):
    """Something is not installed; `repair` is the line that mends it."""

    def __init__(self, message: str, repair: str = "") -> None:
        super().__init__(f"{message}\n  to repair: {repair}" if repair else message)
        self.repair = repair


class VulkanError(VklabError):
    """A Vulkan command answered with an error code."""

    def __init__(self, command: str, result: str, detail: str = "") -> None:
        super().__init__(f"{command} returned {result}" + (f": {detail}" if detail else ""))
        self.command = command
        self.result = result
        self.detail = detail

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.command, self.result, self.detail)


class OutOfMemoryError(VulkanError):
    """A device or the host has no room; the message gives asked and available bytes."""


class DeviceLostError(VulkanError):
    """The device stopped answering; the message names the last work it was given."""


class TimeoutError(VulkanError):  # noqa: A001  (the field's word; lives in this tree)
    """A wait ended before the device did; the message gives the limit."""


class ShaderError(VklabError):
    """A shader does not compile or does not match its dispatch."""


class ModelError(VklabError):
    """A model, or what was fed to it, breaks a rule of ONNX."""


class UnsupportedOperatorError(ModelError):
    """A node that no device in use can run, with the reason."""


class ValueNeededError(UnsupportedOperatorError):
    """A node cannot be planned before a value is known; `value` is its name."""

    def __init__(self, message: str, value: str = "") -> None:
        super().__init__(message)
        self.value = value


class PlanError(VklabError):
    """A plan that cannot be carried out on the device it was made for."""


class CheckError(VklabError):
    """Results differ from the reference; the message lists the first that do."""
