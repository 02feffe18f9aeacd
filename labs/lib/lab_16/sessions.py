"""Record sessions of ONNX Runtime: providers asked for, providers listed, nodes by provider.

    PYTHONPATH=FOLDER python3 -P labs/lib/lab_16/sessions.py MODEL PROVIDER ...

FOLDER holds a full build, such as onnxruntime-openvino. MODEL is the path of an ONNX file, or
"split": a graph of five nodes, of which few providers know Det.
Made the recorded sessions of lab 16.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np

ASSIGNMENT = "session.record_ep_graph_assignment_info"


def split() -> bytes:
    """Return an ONNX file of five nodes, with Det in the middle."""
    from onnx import TensorProto, helper

    steps = ("Relu", "x", "a"), ("MatMul", "a x", "b"), ("Det", "b", "c"), ("Relu", "c", "d")
    nodes = [helper.make_node(op, reads.split(), [to]) for op, reads, to in steps]
    nodes.append(helper.make_node("Add", ["d", "d"], ["y"]))
    ends = ("x", [2, 4, 4]), ("y", [2])
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in ends]
    graph = helper.make_graph(nodes, "split", values[:1], values[1:])
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


def recorded(model: str, providers: list[str]) -> dict[str, Any]:
    """Open a session, and return what it says about itself.

    Args:
        model: path of an ONNX file, or "split".
        providers: as given to InferenceSession.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(ASSIGNMENT, "1")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        source = split() if model == "split" else model
        session = onnxruntime.InferenceSession(source, options, providers=providers)
    nodes: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    return {
        "build": f"onnxruntime {onnxruntime.__version__}",
        "model": model.rpartition("/")[2],
        "asked": providers[0],
        "session": session.get_providers(),
        "assignment": dict(nodes),
        "warnings": [str(each.message).splitlines()[0][:100] for each in warned],
    }


def halved(model: str) -> str:
    """Return what ONNX Runtime's tool makes of a file's weights: bytes, and the largest error."""
    import onnx
    import onnxruntime
    from onnxruntime.transformers.float16 import convert_float_to_float16

    file = onnx.load(model)
    before = file.SerializeToString()
    after = convert_float_to_float16(file, keep_io_types=True).SerializeToString()
    outputs = []
    for source in (before, after):
        session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
        image = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
        outputs.append(session.run(None, {session.get_inputs()[0].name: image})[0])
    error = np.abs(outputs[0] - outputs[1]).max()
    return (
        f"{len(before):,} bytes become {len(after):,}; the largest error is {error:.4f} of "
        f"{np.abs(outputs[0]).max():.1f}"
    )


if __name__ == "__main__":
    print(json.dumps(recorded(sys.argv[1], sys.argv[2:])))
