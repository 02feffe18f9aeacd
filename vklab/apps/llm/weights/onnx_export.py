"""Write a language model as an ONNX file of standard operators, which any ONNX runtime can load.

Matrices leave their blocks: they are stored as floats, in the file's own rows. Decides what takes
the place of an operator of vklab.
Source: ONNX Attention-23, RotaryEmbedding-23, RMSNormalization-23.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab.apps.llm.graphs import models
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError
from vklab.graph import onnx_functions
from vklab.graph.graph import Graph, Node
from vklab.ops.dtypes import ELEMENT_TYPES

# The first opset with all operators that are written, and the format of files that may have it.
OPSET, IR_VERSION = 23, 11
FLOATS = {"F32": np.float32, "F16": np.float16}
# Above this the weights go into a file of their own: a message of Protocol Buffers ends at 2 GiB.
MOST_BYTES = 1 << 30
Dequantize = Callable[[str, np.ndarray], np.ndarray]


def to_onnx(
    file: GgufFile, dequantize: Dequantize, kind: str = "F32", context: int | None = None
) -> onnx.ModelProto:
    """Return the model of a GGUF file as ONNX, with the inputs and outputs of `models.model_graph`.

    Args:
        file: the file.
        dequantize: returns the values of rows of blocks, from a format and bytes.
        kind: the floats that hold matrices, F32 or F16; arithmetic is in float32.
        context: the most positions; default the model's own.

    Raises ModelError for an unknown kind, and for a file that holds no known model.
    """
    if kind not in FLOATS:
        raise ModelError(f"matrices cannot be stored as {kind!r:.40}; choose {', '.join(FLOATS)}")
    graph = models.model_graph(file, context)
    matrices = {
        name
        for node in graph.nodes
        for name in node.inputs
        if node.domain == "vklab" and name in graph.initializers
    }
    constants = []
    for name, info in graph.initializers.items():
        if name in matrices:
            tensor = file.tensor(name)
            values = dequantize(tensor.block_type, tensor.data).reshape(tensor.shape)
            constants.append(numpy_helper.from_array(values.astype(FLOATS[kind]), name))
        else:
            constants.append(numpy_helper.from_array(np.asarray(info.constant), name))
    widened = (
        [
            Node(f"{name}:floats", "Cast", (name,), (f"{name}:floats",), {"to": 1})
            for name in sorted(matrices)
        ]
        if kind != "F32"
        else []
    )
    ending = ":floats" if widened else ""
    nodes = [
        onnx_functions.to_proto(made) for node in graph.nodes for made in _standard(node, ending)
    ]
    proto = helper.make_graph(
        [*map(onnx_functions.to_proto, widened), *nodes],
        graph.name or "language model",
        [
            helper.make_tensor_value_info(info.name, ELEMENT_TYPES[info.dtype], info.shape)
            for info in graph.inputs
        ],
        _outputs(graph),
        constants,
    )
    return helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="vklab",
    )


def _standard(node: Node, ending: str) -> Iterator[Node]:
    """Yield what computes the same as a node by operators of ONNX.

    Args:
        node: the node.
        ending: what the names of matrices as float32 end in.
    """
    name = node.outputs[0]
    if node.op_type == "GatherBlocks":
        matrix, indices = node.inputs
        yield Node(node.name, "Gather", (f"{matrix}{ending}", indices), node.outputs)
    elif node.op_type == "MatMulBlocks":
        x, matrix = node.inputs
        turned = f"{name}:turned"
        yield Node(turned, "Transpose", (f"{matrix}{ending}",), (turned,), {"perm": [1, 0]})
        yield Node(node.name, "MatMul", (x, turned), node.outputs)
    elif node.op_type == "Swish":  # of opset 24
        yield Node(f"{name}:gate", "Sigmoid", node.inputs, (f"{name}:gate",))
        yield Node(node.name, "Mul", (node.inputs[0], f"{name}:gate"), node.outputs)
    else:
        yield node


def _outputs(graph: Graph) -> list[onnx.ValueInfoProto]:
    """Return the declarations of the logits and of the longer caches."""
    shapes = {info.name.removeprefix("past_"): info.shape for info in graph.inputs}
    made = []
    for name in graph.outputs:
        batch, heads, _, size = shapes.get(name, ("batch", 0, 0, 0))
        shape = (batch, heads, "positions", size) if name in shapes else (batch, 1, "vocabulary")
        made.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    return made


def export(
    file: GgufFile, path: str | os.PathLike[str], dequantize: Dequantize, kind: str = "F32",
    context: int | None = None,
) -> int:  # fmt: skip
    """Write the model of a GGUF file as ONNX, and return the bytes of its weights.

    Weights of more than a gibibyte go into PATH.data beside the file.

    Args:
        file: the file.
        path: the ONNX file to write.
        dequantize: as for `to_onnx`.
        kind: as for `to_onnx`.
        context: as for `to_onnx`.
    """
    proto = to_onnx(file, dequantize, kind, context)
    size = sum(len(each.raw_data) for each in proto.graph.initializer)
    target = Path(path)
    if size > MOST_BYTES:
        onnx.save_model(proto, target, save_as_external_data=True, location=f"{target.name}.data")
    else:
        onnx.save_model(proto, target)
    return size
