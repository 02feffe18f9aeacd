"""Layers of a Core ML NeuralNetwork as ONNX nodes: one small function for each layer type.

Source: NeuralNetwork.proto of coremltools 9
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vklab.apps.compare.coreml import elementwise, movement, operators
from vklab.apps.compare.coreml.emission import Emission
from vklab.apps.compare.coreml.network.network_weights import weights
from vklab.errors import ModelError
from vklab.types import TensorInfo

Inputs = Sequence[TensorInfo]
Rule = Callable[[Emission, Inputs, Any], None]
LAYERS: dict[str, tuple[Rule, range]] = {}
MANY = 1000


def _layer(*kinds: str, inputs: range = range(1, 2)) -> Callable[[Rule], Rule]:
    """Register the function of layer types, and the numbers of inputs that they take."""

    def register(function: Rule) -> Rule:
        for kind in kinds:
            LAYERS[kind] = (function, inputs)
        return function

    return register


def emit(op: Emission, inputs: Inputs, layer: Any) -> None:
    """Fill the emission of a layer.

    Args:
        op: the emission.
        inputs: infos of the layer's inputs.
        layer: the layer's message.
    """
    if op.kind not in LAYERS:
        raise op.refusal(
            f"vklab has no layer type {op.kind!r}; {__name__}.LAYERS lists the "
            f"{len(LAYERS)} that it has"
        )
    function, counts = LAYERS[op.kind]
    if len(inputs) not in counts:
        raise ModelError(f"{op.title} has {len(inputs)} inputs")
    try:
        function(op, inputs, getattr(layer, op.kind))
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        raise ModelError(
            f"{op.title} does not go with its inputs {', '.join(map(str, inputs))}: {error}"
        ) from error


def _padding(op: Emission, layer: Any) -> dict[str, object]:
    """Return ONNX's padding attributes of a two-dimensional window."""
    if layer.HasField("same"):
        return {"auto_pad": "SAME_LOWER" if layer.same.asymmetryMode else "SAME_UPPER"}
    if not layer.HasField("valid"):
        raise op.refusal("padding other than valid and same")
    edges = layer.valid.paddingAmounts.borderAmounts
    if len(edges) not in (0, 2):
        raise ModelError(f"{op.title} pads {len(edges)} axes of 2")
    return {
        "pads": (*(edge.startEdgeSize for edge in edges), *(edge.endEdgeSize for edge in edges))
        or (0, 0, 0, 0)
    }


@_layer("convolution")
def _convolution(op: Emission, inputs: Inputs, layer: Any) -> None:
    if layer.isDeconvolution:
        raise op.refusal("deconvolution")
    kernel = tuple(layer.kernelSize) or (3, 3)
    shape = (layer.outputChannels, layer.kernelChannels, *kernel)
    bias = weights(op, layer.bias, shape[:1]) if layer.hasBias else None
    op.result(
        "Conv",
        inputs[0],
        weights(op, layer.weights, shape),
        bias,
        group=layer.nGroups or 1,
        strides=tuple(layer.stride) or (1, 1),
        dilations=tuple(layer.dilationFactor) or (1, 1),
        **_padding(op, layer),
    )


@_layer("pooling")
def _pooling(op: Emission, inputs: Inputs, layer: Any) -> None:
    kinds = ("Max", "Average")
    if layer.type >= len(kinds):
        raise op.refusal(f"pooling type {layer.type}; vklab has 0 (maximum) and 1 (average)")
    kind = kinds[layer.type]
    if layer.globalPooling:
        op.result(f"Global{kind}Pool", inputs[0])
        return
    counted = int(not layer.avgPoolExcludePadding) if kind == "Average" else None
    op.result(
        f"{kind}Pool",
        inputs[0],
        kernel_shape=tuple(layer.kernelSize) or (3, 3),
        strides=tuple(layer.stride) or (1, 1),
        count_include_pad=counted,
        **_padding(op, layer),
    )


@_layer("activation")
def _activation(op: Emission, inputs: Inputs, layer: Any) -> None:
    (x,), kind = inputs, layer.WhichOneof("kind")
    same = {
        "ReLU": "Relu",
        "tanh": "Tanh",
        "sigmoid": "Sigmoid",
        "softsign": "Softsign",
        "softplus": "Softplus",
    }
    numbers = getattr(layer, kind) if kind else None
    if kind in same:
        op.result(same[kind], x)
    elif kind == "linear" and numbers:
        scaled = op.node("Mul", x, np.float32(numbers.alpha))
        op.result("Add", scaled, np.float32(numbers.beta))
    elif kind == "scaledTanh" and numbers:
        inner = op.node("Tanh", op.node("Mul", x, np.float32(numbers.beta)))
        op.result("Mul", inner, np.float32(numbers.alpha))
    elif kind in ("leakyReLU", "ELU") and numbers:
        op.result({"leakyReLU": "LeakyRelu", "ELU": "Elu"}[kind], x, alpha=numbers.alpha)
    elif kind == "sigmoidHard" and numbers:
        op.result("HardSigmoid", x, alpha=numbers.alpha, beta=numbers.beta)
    elif kind == "thresholdedReLU" and numbers:
        below = op.node("Less", x, np.float32(numbers.alpha))
        op.result("Where", below, np.float32(0), x)
    else:
        raise op.refusal(f"activation {kind or 'unknown'}")


@_layer("innerProduct")
def _inner_product(op: Emission, inputs: Inputs, layer: Any) -> None:
    (x,) = inputs
    if layer.int8DynamicQuantize:
        raise op.refusal("int8DynamicQuantize")
    if x.rank not in (2, 3):
        raise op.refusal(f"an input of rank {x.rank}; vklab takes 2 and 3")
    matrix = weights(op, layer.weights, (layer.outputChannels, layer.inputChannels))
    bias = weights(op, layer.bias, (layer.outputChannels,)) if layer.hasBias else None
    name = op.outputs[0].name
    info = TensorInfo(f"{name}/weight", "float32", matrix.shape, matrix)
    shift = None if bias is None else TensorInfo(f"{name}/bias", "float32", bias.shape, bias)
    operators.linear(op, x, info, shift)


@_layer("batchedMatmul", inputs=range(1, 3))
def _batched_matmul(op: Emission, inputs: Inputs, layer: Any) -> None:
    if layer.int8DynamicQuantize:
        raise op.refusal("int8DynamicQuantize")
    if len(inputs) == 1:
        shape = (layer.weightMatrixFirstDimension, layer.weightMatrixSecondDimension)
        product = (inputs[0], weights(op, layer.weights, shape))
        if layer.transposeA or layer.transposeB:
            raise op.refusal("transposition with a weight matrix")
        if layer.hasBias:
            op.result("Add", op.node("MatMul", *product), weights(op, layer.bias, shape[1:]))
        else:
            op.result("MatMul", *product)
        return
    operators.matmul(op, *inputs, transpose_x=layer.transposeA, transpose_y=layer.transposeB)


@_layer("add", "multiply", inputs=range(1, MANY))
def _add_or_multiply(op: Emission, inputs: Inputs, layer: Any) -> None:
    kind = {"add": "Add", "multiply": "Mul"}[op.kind]
    total: TensorInfo | str = inputs[0]
    operands: list[Any] = [np.float32(layer.alpha)] if len(inputs) == 1 else list(inputs[1:])
    if len({info.rank for info in inputs}) > 1:
        raise op.refusal(f"inputs of different ranks: {', '.join(map(str, inputs))}")
    for operand in operands[:-1]:
        total = op.node(kind, total, operand)
    op.result(kind, total, operands[-1])


BROADCASTABLE = {"addBroadcastable": "Add", "subtractBroadcastable": "Sub",
                 "multiplyBroadcastable": "Mul", "divideBroadcastable": "Div",
                 "powBroadcastable": "Pow"}  # fmt: skip


@_layer(*BROADCASTABLE, inputs=range(2, 3))
def _broadcastable(op: Emission, inputs: Inputs, layer: Any) -> None:
    op.result(BROADCASTABLE[op.kind], *inputs)


@_layer("tanh", "erf", "copy")
def _unary(op: Emission, inputs: Inputs, layer: Any) -> None:
    op.result({"tanh": "Tanh", "erf": "Erf", "copy": "Identity"}[op.kind], *inputs)


@_layer("gelu")
def _gelu(op: Emission, inputs: Inputs, layer: Any) -> None:
    modes = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    elementwise.gelu(op, inputs[0], mode=modes[layer.mode])


@_layer("scale")
def _scale(op: Emission, inputs: Inputs, layer: Any) -> None:
    product = (inputs[0], _per_channel(weights(op, layer.scale, tuple(layer.shapeScale))))
    if layer.hasBias:
        shift = _per_channel(weights(op, layer.bias, tuple(layer.shapeBias)))
        op.result("Add", op.node("Mul", *product), shift)
    else:
        op.result("Mul", *product)


def _per_channel(values: np.ndarray) -> np.ndarray:
    """Return a vector as one of channels, which precede height and width."""
    return values.reshape(-1, 1, 1) if values.ndim == 1 and values.size > 1 else values


@_layer("batchnorm")
def _batchnorm(op: Emission, inputs: Inputs, layer: Any) -> None:
    if layer.computeMeanVar or layer.instanceNormalization:
        raise op.refusal("statistics of the input")
    numbers = (
        weights(op, each, (layer.channels,))
        for each in (layer.gamma, layer.beta, layer.mean, layer.variance)
    )
    op.result("BatchNormalization", inputs[0], *numbers, epsilon=layer.epsilon or 1e-5)


@_layer("mvn")
def _mvn(op: Emission, inputs: Inputs, layer: Any) -> None:
    (x,) = inputs
    if x.rank < 3 or not layer.normalizeVariance:
        raise op.refusal(f"rank {x.rank}, normalizeVariance={layer.normalizeVariance}")
    axis = x.rank - (3 if layer.acrossChannels else 2)
    op.result(
        "LayerNormalization",
        x,
        op.filled(1, x.dims[axis:], "float32"),
        axis=axis,
        epsilon=layer.epsilon or 1e-6,
    )


@_layer("layerNormalization")
def _layer_normalization(op: Emission, inputs: Inputs, layer: Any) -> None:
    (x,), shape = inputs, tuple(layer.normalizedShape)
    gamma, beta = (weights(op, each, shape) for each in (layer.gamma, layer.beta))
    op.result("LayerNormalization", x, gamma, beta, axis=x.rank - len(shape), epsilon=layer.eps)


@_layer("softmaxND")
def _softmax(op: Emission, inputs: Inputs, layer: Any) -> None:
    op.result("Softmax", inputs[0], axis=layer.axis)


@_layer("reduceMean", "reduceSum")
def _reduce(op: Emission, inputs: Inputs, layer: Any) -> None:
    axes = None if layer.reduceAll else np.asarray(layer.axes, np.int64)
    op.result(op.kind.replace("r", "R", 1), inputs[0], axes, keepdims=int(layer.keepDims))


@_layer("embeddingND")
def _embedding(op: Emission, inputs: Inputs, layer: Any) -> None:
    (x,) = inputs
    if x.shape[-1:] != (1,):
        raise ModelError(f"{op.title}: the last dimension of {x} must be 1")
    table = weights(op, layer.weights, (layer.embeddingSize, layer.vocabSize)).T
    if layer.hasBias:
        table = table + weights(op, layer.bias, (layer.embeddingSize,))
    numbers = op.node("Squeeze", op.node("Cast", x, to=6), np.asarray([-1], np.int64))
    op.result("Gather", np.ascontiguousarray(table), numbers, axis=0)


@_layer("loadConstantND", inputs=range(1))
def _load_constant(op: Emission, inputs: Inputs, layer: Any) -> None:
    values = weights(op, layer.data, tuple(layer.shape))
    name = op.outputs[0].name
    op.results[name] = TensorInfo(name, "float32", values.shape, values)


@_layer("reshapeStatic")
def _reshape(op: Emission, inputs: Inputs, layer: Any) -> None:
    op.result("Reshape", inputs[0], np.asarray(layer.targetShape, np.int64))


@_layer("transpose")
def _transpose(op: Emission, inputs: Inputs, layer: Any) -> None:
    op.result("Transpose", inputs[0], perm=tuple(layer.axes))


@_layer("squeeze")
def _squeeze(op: Emission, inputs: Inputs, layer: Any) -> None:
    axes = None if layer.squeezeAll else np.asarray(layer.axes, np.int64)
    op.result("Squeeze", inputs[0], axes)


@_layer("expandDims")
def _expand_dims(op: Emission, inputs: Inputs, layer: Any) -> None:
    op.result("Unsqueeze", inputs[0], np.asarray(layer.axes, np.int64))


@_layer("sliceStatic")
def _slice(op: Emission, inputs: Inputs, layer: Any) -> None:
    movement.slice_by_index(
        op,
        inputs[0],
        begin=layer.beginIds,
        end=layer.endIds,
        stride=layer.strides,
        begin_mask=layer.beginMasks,
        end_mask=layer.endMasks,
        squeeze_mask=layer.squeezeMasks,
    )


@_layer("splitND")
def _split(op: Emission, inputs: Inputs, layer: Any) -> None:
    if layer.numSplits not in (0, len(op.outputs)):
        raise ModelError(
            f"{op.title} has {len(op.outputs)} outputs, but numSplits is {layer.numSplits}"
        )
    sizes = np.asarray(layer.splitSizes, np.int64) if layer.splitSizes else None
    number = {} if layer.splitSizes else {"num_outputs": len(op.outputs)}
    op.result("Split", inputs[0], sizes, axis=layer.axis, **number)


@_layer("concatND", inputs=range(1, MANY))
def _concat(op: Emission, inputs: Inputs, layer: Any) -> None:
    if layer.interleave:
        raise op.refusal("interleave")
    op.result("Concat", *inputs, axis=layer.axis)
