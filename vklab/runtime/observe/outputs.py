"""Dtype and shape of a session's outputs, by ONNX's shape inference; open dimensions are names.

Visited by lab 09.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import shape_inference

from vklab.graph import onnx_import
from vklab.runtime import host
from vklab.types import TensorInfo

__all__ = ["infos"]


def infos(session: Any) -> tuple[TensorInfo, ...]:
    """Return name, dtype and shape of each output, in order; open dimensions are names.

    Source: ONNX, "ONNX Shape Inference"
    """
    proto = host.to_proto(session.graph) if session.model is None else \
        onnx_import.load_proto(session.model)[0]
    declared = {value.name: value for value in proto.graph.output}
    try:
        inferred = shape_inference.infer_shapes(onnx_import.prepare(proto), data_prop=True)
        inferred_outputs = {value.name: value for value in inferred.graph.output}
    except Exception:  # onnx's C++ exceptions share no base class; 2 GiB are too much for it
        inferred_outputs = {}
    return tuple(
        _info(inferred_outputs.get(name) or declared.get(name) or onnx.ValueInfoProto(name=name))
        for name in session.outputs
    )


def _info(value: onnx.ValueInfoProto) -> TensorInfo:
    return onnx_import.value_info(value, is_typed=False)
