"""ONNX's backend interface on Vulkan, for `onnx.backend.test.BackendTest(vklab.onnx_backend)`.

Models load on a Vulkan device; nodes without a kernel run on the host unless VKLAB_FALLBACK=0.
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
    """A prepared model: run it any number of times, then close it."""

    def __init__(self, loaded: session.Session) -> None:
        self.session = loaded

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run once.

        Args:
            inputs: arrays in the graph's order, or by name.
            kwargs: ignored; part of ONNX's interface.

        Returns the outputs in the graph's order.
        """
        del kwargs
        given = (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)
        return tuple(self.session.run(*given).values())

    def close(self) -> None:
        """Free the model's buffers and kernels on its device."""
        self.session.close()


class VulkanBackend(Backend):
    """ONNX's backend interface over `vklab.load`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Tell whether a model can be loaded: every ONNX model with an output can.

        Args:
            model: the ONNX model.
            device: "CPU" for the fastest device, "VULKAN:1" for one by index, or part of a name.
            kwargs: ignored; part of ONNX's interface.
        """
        del kwargs
        return cls.supports_device(device) and bool(model.graph.output)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> VulkanRep:
        """Load a model; raises the errors of `vklab.load`.

        Args:
            model: the ONNX model.
            device: as in `is_compatible`.
            kwargs: ignored; part of ONNX's interface.
        """
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
            node: the ONNX node.
            inputs: arrays in the node's order, or by name.
            device: as in `is_compatible`.
            outputs_info: ignored; part of ONNX's interface.
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
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", values, outputs)
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
    """Return the `device` argument of `vklab.load` for a device of the backend interface."""
    kind, _, number = device.partition(":")
    if kind.upper() in ("CPU", "VULKAN"):
        return int(number) if number.isdigit() else None
    return device


is_compatible = VulkanBackend.is_compatible
prepare = VulkanBackend.prepare
run_model = VulkanBackend.run_model
run_node = VulkanBackend.run_node
supports_device = VulkanBackend.supports_device
