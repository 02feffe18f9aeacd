"""Number of terms in the sums of an ONNX node, and whether it computes functions such as exp.

Both set the node's tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

# Operators that evaluate functions which devices approximate.
FUNCTIONS = {
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Attention", "Celu", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "GRU", "Gelu", "LSTM", "Log", "LogSoftmax", "Mish", "MultiHeadAttention", "Pow",
    "QuickGelu", "RNN", "ReduceLogSum", "ReduceLogSumExp", "RotaryEmbedding", "Selu", "Sigmoid",
    "Silu", "Sin", "Sinh", "Softmax", "Softplus", "Swish", "Tan", "Tanh",
}  # fmt: skip
WHOLE_AXES = {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"}
ONE_AXIS = {"Softmax", "LogSoftmax", "Hardmax", "CumSum"}


def has_functions(node: onnx.NodeProto) -> bool:
    """Tell whether a node computes functions that devices approximate."""
    return node.op_type in FUNCTIONS


def terms(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the number of terms in the longest sums of a node; 1 for one without sums.

    Args:
        node: the node.
        shapes: shapes of its inputs and outputs by name.
    """
    inputs = [tuple(shapes.get(name, ())) for name in node.input]
    output = tuple(shapes.get(node.output[0], ()))
    x = inputs[0] if inputs else ()
    options = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    kind = node.op_type
    count = 1
    if kind == "Conv" and len(inputs) > 1:
        count = math.prod(inputs[1][1:])
    elif kind == "ConvTranspose" and len(inputs) > 1:
        count = inputs[1][0] // options.get("group", 1) * math.prod(inputs[1][2:])
    elif kind in ("Gemm", "MatMul") and x:
        count = x[0] if options.get("transA") and len(x) == 2 else x[-1]
    elif kind in WHOLE_AXES and x:
        count = math.prod(x[options.get("axis", -1) :])
    elif kind in ONE_AXIS and x:
        count = x[options.get("axis", -1)]
    elif kind == "Attention" and len(inputs) > 1 and inputs[1] and x:
        count = max(inputs[1][-2], x[-1])
    elif kind == "AveragePool":
        count = math.prod(options.get("kernel_shape", ()))
    elif kind.startswith(("Reduce", "GlobalAveragePool", "Einsum")):
        count = max(map(math.prod, filter(None, inputs)), default=1) // max(math.prod(output), 1)
    elif kind in ("InstanceNormalization", "GroupNormalization") and len(x) > 1:
        groups = options.get("num_groups", x[1])
        count = math.prod(x[1:]) // groups
    elif kind in ("LSTM", "GRU", "RNN") and len(inputs) > 2:
        count = inputs[1][-1] + inputs[2][-1]
    return max(int(count), 1)
