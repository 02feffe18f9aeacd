"""Bound runs of ONNX Runtime: inputs and outputs stay in the memory of the provider's device.

A plain run copies arrays in and makes new arrays for the outputs. A bound one does neither.
Source: ONNX Runtime, "I/O Binding"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vklab.runtime import host

# The name of the device's memory by provider; the others read and write that of the CPU.
MEMORIES = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda",
            "NvTensorRTRTXExecutionProvider": "cuda", "DmlExecutionProvider": "dml",
            "MIGraphXExecutionProvider": "rocm"}  # fmt: skip


class Bound:
    """One set of inputs in the device's memory, and memory for the outputs that they give.

    Args:
        session: an InferenceSession.
        inputs: arrays by input name; they are copied once.
        provider: name of the execution provider.
        device_id: number of its device.
    """

    def __init__(
        self, session: Any, inputs: Mapping[str, np.ndarray], provider: str, device_id: int
    ) -> None:
        values = host.load_onnxruntime().OrtValue
        memory = MEMORIES.get(provider, "cpu")
        self._session, self._binding = session, session.io_binding()
        self._names = [output.name for output in session.get_outputs()]
        for name, array in inputs.items():
            value = values.ortvalue_from_numpy(np.ascontiguousarray(array), memory, device_id)
            self._binding.bind_ortvalue_input(name, value)
        for name in self._names:
            self._binding.bind_output(name, memory, device_id)
        self.run()  # makes the outputs, in which later runs write again
        for name, value in zip(self._names, self._binding.get_outputs(), strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        """Compute the outputs, and wait for them."""
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()

    def outputs(self) -> dict[str, np.ndarray]:
        """Return copies of the outputs by name on the host."""
        copies = self._binding.copy_outputs_to_cpu()
        return dict(zip(self._names, copies, strict=True))
