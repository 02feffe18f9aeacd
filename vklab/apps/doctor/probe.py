"""Child process that opens the drivers: lists layers and devices, or adds three numbers on one.

Run as `python -m vklab.apps.doctor.probe list` or `... run INDEX`; prints one JSON object as its
last line. Never imported by the doctor itself. Visited by lab 00.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from vklab.apps.doctor import child
from vklab.errors import ShaderError, VklabError
from vklab.runtime import loading, open_devices
from vklab.shader import toolchain
from vklab.vulkan import instance


def list_devices() -> dict[str, Any]:
    """Return the instance layers and the facts of every device."""
    layers = instance.layers()
    return {
        "layers": layers,
        "devices": [info.summary() for info in open_devices.devices()],
    }


def run_device(index: int) -> dict[str, Any]:
    """Add three numbers with a kernel on one device; return the device's result."""
    names = ("left", "right", "sum")
    left, right, total = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in names
    )
    graph = helper.make_graph(
        [helper.make_node("Add", names[:2], names[2:])], "three", [left, right], [total]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with loading.load(model, device=index) as loaded:
        values = (np.array(numbers, np.float32) for numbers in (child.LEFT, child.RIGHT))
        return {"got": loaded.run(*values)["sum"].tolist()}


def main(arguments: Sequence[str]) -> int:
    """Answer one question as JSON on stdout."""
    try:
        answer = list_devices() if arguments[0] == "list" else run_device(int(arguments[1]))
    except VklabError as error:
        message = str(error).splitlines()[0]
        # The probe's kernel is correct: if it does not compile, replace the compiler.
        line = toolchain.REPAIRS["slang"] if isinstance(error, ShaderError) else ""
        answer = {"error": message, "repair": getattr(error, "repair", line)}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
