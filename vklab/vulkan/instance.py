"""VkInstance: the connection between this process and the Vulkan loader.

Enables portability drivers (MoltenVK) where they exist and, on request, the validation layer,
whose messages become Python objects. Chooses no device. Visited by labs 02 and 06.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vklab.base import catalogue
from vklab.errors import SetupError, VulkanError
from vklab.vulkan import api

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
_SEVERITIES = ((0x1000, "error"), (0x0100, "warning"), (0x0010, "info"), (0x0001, "verbose"))
# Imported after a failure.
no_driver, _explain = catalogue.step("no driver"), catalogue.step("explain an instance")
_listeners: list[Any] = []  # cffi handles of message lists, kept until the process ends


@dataclass(frozen=True)
class ValidationMessage:
    """One message of the validation layer or the driver."""

    severity: str
    identifier: str
    text: str


def _on_message(severity: int, types: int, data: Any, user_data: Any) -> int:
    name = next((name for bit, name in _SEVERITIES if severity & bit), "verbose")
    api.ffi.from_handle(user_data).append(
        ValidationMessage(name, api.text(data.pMessageIdName), api.text(data.pMessage))
    )
    return 0


# One callback for the process, never freed: drivers may call it until the process ends.
_CALLBACK = api.ffi and api.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", _on_message)


def layers() -> list[str]:
    """Return the names of the instance layers. Vulkan: vkEnumerateInstanceLayerProperties"""
    api.require_loader()
    listed = api.enumerate_all("vkEnumerateInstanceLayerProperties", "VkLayerProperties")
    return [api.text(item.layerName) for item in listed]


def extensions() -> list[str]:
    """Return the instance extensions. Vulkan: vkEnumerateInstanceExtensionProperties"""
    api.require_loader()
    listed = api.enumerate_all(
        "vkEnumerateInstanceExtensionProperties", "VkExtensionProperties", api.ffi.NULL
    )
    return [api.text(item.extensionName) for item in listed]


class Instance(api.VulkanObject):
    """A connection to the Vulkan loader. Vulkan: vkCreateInstance

    Raises SetupError without a loader, without a driver, or without a requested layer.
    """

    kind = "VkInstance"

    def __init__(self, validate: bool = False) -> None:
        api.require_loader()
        self.validate = validate
        self.messages: list[ValidationMessage] = []
        self._messenger = api.ffi.NULL
        if validate:
            _listeners.append(api.ffi.new_handle(self.messages))
            self._listener = _listeners[-1]
        try:
            super().__init__(self._create())
        except VulkanError as error:
            _explain(error)
            raise
        if validate:
            self._listen()

    def _create(self) -> Any:
        wanted, chosen_layers, flags = [], [], 0
        available = extensions()
        if "VK_KHR_portability_enumeration" in available:
            wanted.append("VK_KHR_portability_enumeration")
            flags = api.constant("VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR")
        if self.validate:
            if VALIDATION_LAYER not in layers():
                raise SetupError(
                    f"the validation layer {VALIDATION_LAYER} is not installed",
                    "apt-get install vulkan-validationlayers   (or the Vulkan SDK)",
                )
            chosen_layers.append(VALIDATION_LAYER)
            wanted.append("VK_EXT_debug_utils")
        application = api.struct(
            "VkApplicationInfo", pApplicationName="vklab", apiVersion=api.make_version(1, 3)
        )
        info = api.struct(
            "VkInstanceCreateInfo",
            pApplicationInfo=application,
            flags=flags,
            enabledExtensionCount=len(wanted),
            ppEnabledExtensionNames=wanted,
            enabledLayerCount=len(chosen_layers),
            ppEnabledLayerNames=chosen_layers,
            pNext=self._messenger_info() if self.validate else None,
        )
        out = api.ffi.new("VkInstance *")
        api.call("vkCreateInstance", info, api.ffi.NULL, out)
        return out[0]

    def _messenger_info(self) -> Any:
        kinds = ("GENERAL", "VALIDATION", "PERFORMANCE")
        prefix = "VK_DEBUG_UTILS_MESSAGE_"
        return api.struct(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=api.constant(f"{prefix}SEVERITY_ERROR_BIT_EXT")
            | api.constant(f"{prefix}SEVERITY_WARNING_BIT_EXT"),
            messageType=sum(api.constant(f"{prefix}TYPE_{kind}_BIT_EXT") for kind in kinds),
            pfnUserCallback=_CALLBACK,
            pUserData=self._listener,
        )

    def _listen(self) -> None:
        create = self.command("vkCreateDebugUtilsMessengerEXT")
        out = api.ffi.new("VkDebugUtilsMessengerEXT *")
        result = create(self.handle, self._messenger_info(), api.ffi.NULL, out)
        api.check("vkCreateDebugUtilsMessengerEXT", result)
        self._messenger = out[0]

    def command(self, name: str) -> Any:
        """Return a command that the loader does not export. Vulkan: vkGetInstanceProcAddr"""
        pointer = api.lib.vkGetInstanceProcAddr(self.handle, name.encode())
        if pointer == api.ffi.NULL:
            raise VulkanError(name, "VK_ERROR_EXTENSION_NOT_PRESENT", "not in the loader")
        return api.ffi.cast(f"PFN_{name}", pointer)

    def physical_devices(self) -> list[Any]:
        """Return the physical device handles. Vulkan: vkEnumeratePhysicalDevices"""
        try:
            return api.enumerate_all("vkEnumeratePhysicalDevices", "VkPhysicalDevice", self.handle)
        except VulkanError as error:
            _explain(error)
            raise

    def raise_messages(self) -> None:
        """Raise VulkanError with all validation messages collected so far, and clear them."""
        if self.messages:
            lines = [f"{m.severity} {m.identifier}: {m.text}" for m in self.messages]
            self.messages.clear()
            raise VulkanError("validation", "VK_ERROR_VALIDATION_FAILED_EXT", "\n".join(lines))

    def _destroy(self) -> None:
        if self._messenger != api.ffi.NULL:
            destroy = self.command("vkDestroyDebugUtilsMessengerEXT")
            destroy(self.handle, self._messenger, api.ffi.NULL)
        api.lib.vkDestroyInstance(self.handle, api.ffi.NULL)
