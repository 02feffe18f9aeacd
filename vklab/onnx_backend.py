"""vklab as a standard ONNX backend: what `onnx.backend.test.BackendTest(vklab.onnx_backend)` takes.

Models load on a Vulkan device, and what no kernel can do runs on the host unless
VKLAB_FALLBACK=0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep

from vklab.errors import SetupError
from vklab.graph import onnx_import
from vklab.runtime import open_devices, session

__all__ = [
    "VulkanBackend",
    "VulkanRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class VulkanRep(BackendRep):
    """A prepared model: run it as often as needed, then close it."""

    def __init__(self, loaded: session.Session) -> None:
        self.session = loaded

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run once.

        Args:
            inputs: arrays in the graph's order, or by name.

        Returns the outputs in the graph's order.
        """
        del kwargs
        given = (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)
        return tuple(self.session.run(*given).values())

    def close(self) -> None:
        """Free what the model holds on its device."""
        self.session.close()


class VulkanBackend(Backend):
    """ONNX's backend interface over `vklab.load`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Tell whether a model can be loaded: any that is an ONNX model."""
        del kwargs
        return cls.supports_device(device) and bool(model.graph.output)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> VulkanRep:
        """Load a model; errors as those of `vklab.load`."""
        del kwargs
        graph = onnx_import.from_proto(model)
        opened = open_devices.open_device(_wanted(device))
        return VulkanRep(session.Session(graph, opened, model))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node on arrays.

        Args:
            kwargs: `opset_version`, default the newest.
        """
        del outputs_info
        arrays = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
        names = [name for name in node.input if name]
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        values = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, arrays, strict=True)
        ]
        made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", values, made)
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        prepared = cls.prepare(onnx.helper.make_model(graph, opset_imports=opsets), device)
        with prepared.session:
            return prepared.run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether a device can be used: "CPU" stands for the fastest, "VULKAN:1" for one."""
        try:
            open_devices.select(_wanted(device))
        except SetupError:
            return False
        return True


def _wanted(device: str) -> int | str | None:
    """Return what `vklab.load` calls a device of the backend interface."""
    kind, _, number = device.partition(":")
    if kind.upper() in ("CPU", "VULKAN"):
        return int(number) if number.isdigit() else None
    return device


is_compatible = VulkanBackend.is_compatible
prepare = VulkanBackend.prepare
run_model = VulkanBackend.run_model
run_node = VulkanBackend.run_node
supports_device = VulkanBackend.supports_device
