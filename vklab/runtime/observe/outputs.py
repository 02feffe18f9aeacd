"""Outputs of a session by their dtype and shape, and the metadata of its file.

Visited by lab 09.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import shape_inference

from vklab.graph import onnx_import
from vklab.runtime import host
from vklab.types import TensorInfo


def infos(session: Any) -> tuple[TensorInfo, ...]:
    """Return name, dtype and shape of each output, in order; open dimensions are names.

    Source: ONNX, "ONNX Shape Inference"
    """
    proto = (
        host.to_proto(session.graph)
        if session.model is None
        else onnx_import.load_proto(session.model)[0]
    )
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


def metadata(session: Any) -> dict[str, Any]:
    """Return who made a model and what they wrote into it; {} for a compiled model, which has none.

    The keys are "producer_name", "producer_version", "domain", "model_version", "ir_version",
    "opsets", "doc_string", "graph_name", "graph_doc_string", and "properties": the pairs of
    `metadata_props`. Source: ONNX IR specification, section "Models"
    """
    if session.model is None:
        return {}
    proto = onnx_import.load_proto(session.model)[0]
    own = (
        "producer_name",
        "producer_version",
        "domain",
        "model_version",
        "ir_version",
        "doc_string",
    )
    return {name: getattr(proto, name) for name in own} | {
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        "graph_name": proto.graph.name,
        "graph_doc_string": proto.graph.doc_string,
        "properties": {entry.key: entry.value for entry in proto.metadata_props},
    }


def _info(value: onnx.ValueInfoProto) -> TensorInfo:
    return onnx_import.value_info(value, is_typed=False)
