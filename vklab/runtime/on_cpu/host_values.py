"""Rules of ONNX for host nodes: where ONNX Runtime differs, and what their outputs are.

`onnx.reference` returns what its Python returns, so it is compared with the types that ONNX infers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper, inliner, shape_inference

from vklab.errors import ModelError
from vklab.graph.graph import Node


def differs(nodes: Iterable[Node]) -> bool:
    """Tell whether ONNX Runtime computes a node in another way than ONNX and onnx.reference.

    It takes the indices of MaxUnpool for positions in `output_shape`, not in the pooled tensor.
    """
    return any(
        node.op_type == "MaxUnpool" and not node.domain and len(node.inputs) > 2 for node in nodes
    )


def expanded(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with ONNX's function body for nodes that ONNX Runtime computes differently.

    For masked scores, which Attention returns with `qk_matmul_output_mode` 2, ONNX Runtime writes
    the lowest number of the dtype, where ONNX has -inf.
    """
    masked = [
        node
        for node in _nodes(proto.graph)
        if node.op_type == "Attention"
        and not node.domain
        and len(node.output) > 3
        and any(a.name == "qk_matmul_output_mode" and a.i == 2 for a in node.attribute)
    ]
    if not masked:
        return proto
    return inliner.inline_selected_functions(
        proto, [("", "Attention")], inline_schema_functions=True
    )


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its bodies."""
    for node in graph.node:
        yield node
        for item in node.attribute:
            for body in (item.g, *item.graphs):
                yield from _nodes(body)


def inferred(proto: onnx.ModelProto) -> dict[str, TypeProto]:
    """Return the types that ONNX infers for a model's outputs, without those it cannot tell.

    Source: ONNX, "ONNX Shape Inference"
    """
    try:
        typed = shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # onnx's C++ exceptions share no base class
        typed = proto
    return {
        value.name: value.type for value in typed.graph.output if value.type.WhichOneof("value")
    }


def as_declared(label: str, value: Any, kind: TypeProto | None) -> Any:
    """Return an output of onnx.reference in the form of its type: an array, a list or None.

    Args:
        label: the output and its node, for the error.
        value: the output; an Optional of onnx.reference is a list of one.
        kind: the type that ONNX infers; None if it infers none.

    Raises ModelError for another dtype or shape.
    """
    if kind is not None and kind.HasField("optional_type"):
        inner = kind.optional_type.elem_type
        return None if value is None else as_declared(label, value, inner)
    if kind is not None and kind.HasField("sequence_type") and isinstance(value, list):
        is_wrapped = len(value) == 1 and isinstance(value[0], list)
        inner = kind.sequence_type.elem_type
        return [as_declared(label, item, inner) for item in (value[0] if is_wrapped else value)]
    if kind is not None and kind.tensor_type.elem_type:
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        return _require(label, np.asarray(value), kind.tensor_type)
    return value if value is None or isinstance(value, list) else np.asarray(value)


def _require(label: str, array: np.ndarray, wanted: TypeProto.Tensor) -> np.ndarray:
    """Return an array of the dtype and shape of its type; raise ModelError for another array."""
    dtype = helper.tensor_dtype_to_np_dtype(wanted.elem_type)
    if array.dtype.kind == "U":
        array = array.astype(object)  # as ONNX Runtime returns text
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in wanted.shape.dim]
    fits = not wanted.HasField("shape") or (
        len(sizes) == array.ndim
        and all(size in (None, have) for size, have in zip(sizes, array.shape, strict=True))
    )
    if array.dtype == dtype and fits:
        return array
    shown = ",".join("?" if size is None else str(size) for size in sizes)
    raise ModelError(
        f"onnx.reference returned {label} as {array.dtype}{list(array.shape)}; ONNX "
        f"declares {dtype}[{shown if wanted.HasField('shape') else '...'}]"
    )
