"""fuse_quantized: DequantizeLinear - Conv, Gemm or MatMul - QuantizeLinear as one integer product.

A Relu or Clip in between becomes limits of the codes; without a QuantizeLinear the product returns
float32. Codes travel in words of four, which `join_words` joins. Visited by lab 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import quantized, quantized_weights, rewriting
from vklab.graph.passes.quantized import Codes, Rewrite
from vklab.ops import window, words_product
from vklab.types import TensorInfo

PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
# An int32 holds every sum below this.
MOST = 1 << 30
# Least limits of Vulkan: float32 elements of one binding, and workgroups along an axis.
MOST_ELEMENTS, MOST_GROUPS = 1 << 25, 65535


@dataclass(frozen=True)
class Form:
    """Describe a product of words: the codes that it reads, its operator, its weights' shape."""

    source: str
    op_type: str
    axis: int  # of the words
    shape: tuple[int, int, int]  # filters, channels of each, taps
    attributes: dict[str, Any] = field(default_factory=dict)


def fuse_quantized(graph: Graph) -> Graph:
    """Replace products between DequantizeLinear and QuantizeLinear by products of integers.

    Source: Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference", section 2
    """
    work = Rewrite(graph)
    for node in graph.nodes:
        if node.op_type in PRODUCTS and not node.domain:
            _replace(work, node)
    return work.result()


def _replace(work: Rewrite, node: Node) -> None:
    """Replace the nodes from a product to its QuantizeLinear, if words can compute it."""
    x = quantized.codes_read(work.search, node.inputs[0])
    weights = quantized_weights.weights_of(work.search, node)
    form = form_of(work, node, x.name, len(weights.scales)) if x and weights else None
    if x is None or weights is None or form is None:
        return
    last, y, limits = _end(work, node)
    bias = quantized_weights.bias_of(work.search, node, form.shape[0])
    key = ("less zeros", weights.axis, weights.zeros.tobytes())
    wide = constant_cache.derive(key, weights.less_zeros, weights.codes).reshape(form.shape)
    step, name = (y.scale if y else 1.0), last.outputs[0]
    made = in_words(work, form, wide, name)
    if bias is None or made is None:
        return
    table = words_product.filter_table(
        wide, x.byte_zero, x.scale * weights.scales / step, bias / step
    )
    constants = (made[0], rewriting.constant(internal(name, "quantized table"), table))
    attributes = {
        **made[1],
        "limits": limits,
        "codes": int(y is not None),
        "zeros": (x.byte_zero, y.byte_zero if y else 0),
    }
    packed = quantized.own(
        internal(name, "quantized pack"),
        "PackWords",
        (form.source,),
        internal(name, "quantized packed"),
        axis=form.axis,
    )
    read = (packed.outputs[0], *(info.name for info in constants))
    product = quantized.own(
        internal(name, "quantized product"),
        form.op_type,
        read,
        internal(name, "quantized sums"),
        **attributes,
    )
    steps = [packed, product]
    if form.op_type == "ConvWords" and node.op_type != "Conv":
        flat = Node(
            internal(name, "quantized flatten"),
            "Flatten",
            product.outputs,
            (internal(name, "quantized flat"),),
            {},
            opset=13,
        )
        steps.append(flat)
    if y is not None:
        steps.append(
            quantized.own(
                internal(name, "quantized unpack"),
                "UnpackWords",
                steps[-1].outputs,
                name,
                axis=form.axis,
                size=form.shape[0],
                dtype=y.dtype,
            )
        )
    else:
        steps[-1] = replace(steps[-1], outputs=(name,))
    work.put(last, steps, constants)


def in_words(
    work: Rewrite, form: Form, wide: np.ndarray, name: str
) -> tuple[TensorInfo, dict[str, Any]] | None:
    """Return the weights of a product in words and the attributes that follow from them.

    Args:
        work: the replacements.
        form: the product.
        wide: its weights less their zero points, in the shape of the form.
        name: its result.

    Returns None for a product beyond the limits of some device, or of an int32.
    """
    group = form.attributes.get("group", 1)
    largest = 128 * int(np.abs(wide).reshape(len(wide), -1).sum(1, dtype=np.int64).max(initial=0))
    too_large = largest >= (MOST if group == 1 else words_product.LONGEST)
    if too_large or not _is_bounded(work, form, name):
        return None
    lay_out = partial(words_product.lay_out, group=group)
    weights = rewriting.constant(internal(name, "quantized words"), _derived(group, lay_out, wide))
    return weights, {
        **form.attributes,
        "filters": form.shape[0],
        "depth": form.shape[1],
        "long": int(largest >= words_product.LONGEST),
    }


def _is_bounded(work: Rewrite, form: Form, name: str) -> bool:
    """Tell whether a product fits every device in one dispatch: bindings, loops and workgroups."""
    read, made = work.infos[form.source], work.infos[name]
    images = read.dims[0] if form.op_type == "ConvWords" else 1
    terms = form.shape[1] * form.shape[2]
    return max(read.count, made.count) <= MOST_ELEMENTS and max(images, terms) <= MOST_GROUPS


def _derived(group: int, function: Any, wide: np.ndarray) -> np.ndarray:
    return constant_cache.derive(("words", group, wide.shape), function, wide)


def form_of(work: Rewrite, node: Node, x: str, filters: int) -> Form | None:
    """Return how words compute a product; None if they do not.

    Args:
        work: the replacements.
        node: the product, of floats or of integers.
        x: the value whose codes it reads.
        filters: the number of its filters.
    """
    info = work.infos[x]
    if node.op_type in ("Conv", "ConvInteger"):
        return _convolution(work, node, info)
    known = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    if any(node.attributes.get(name, value) != value for name, value in known.items()):
        return None
    maker = work.search.makers.get(x)
    if maker is not None and maker.op_type in ("Flatten", "Reshape") and info.rank == 2:
        before = work.infos[maker.inputs[0]]
        if before.rank > 2 and before.dims[0] == info.dims[0] and before.rank <= 4:
            # A product with a flattened image is a convolution whose window is the image.
            space = before.dims[2:]
            window_of = {
                "kernel_shape": space,
                "strides": (1,) * len(space),
                "dilations": (1,) * len(space),
                "pads": (0,) * 2 * len(space),
            }
            shape = (filters, before.dims[1], math.prod(space))
            return Form(before.name, "ConvWords", 1, shape, window_of)
    if info.rank < 2:
        return None
    return Form(x, "MatMulWords", info.rank - 1, (filters, info.dims[-1], 1))


def _convolution(work: Rewrite, node: Node, info: TensorInfo) -> Form | None:
    """Return the form of a Conv over one or two axes, with explicit pads."""
    weight = work.infos[node.inputs[1]].dims
    if info.rank not in (3, 4):
        return None
    given = node.attributes
    view = window.resolve(
        info.dims[2:],
        weight[2:],
        given.get("strides"),
        given.get("dilations"),
        given.get("pads"),
        given.get("auto_pad", "NOTSET"),
    )
    attributes = {
        "group": given.get("group", 1),
        "kernel_shape": view.kernel,
        "strides": view.strides,
        "dilations": view.dilations,
        "pads": (*view.pads_begin, *view.pads_end),
    }
    return Form(
        info.name, "ConvWords", 1, (weight[0], weight[1], math.prod(weight[2:])), attributes
    )


def _end(work: Rewrite, node: Node) -> tuple[Node, Codes | None, tuple[int, int]]:
    """Return the last node to replace, the codes that it makes, and their limits.

    Without codes that node is the product itself, whose result is float32.
    """
    low, high = -math.inf, math.inf
    reader = work.only_reader(node.outputs[0])
    if reader is not None and reader.op_type in ("Relu", "Clip") and not reader.domain:
        ends = [
            work.infos[name].constant if name else np.array(end)
            for name, end in zip((*reader.inputs[1:], "", "")[:2], (low, high), strict=False)
        ]
        if reader.op_type == "Relu":
            low = 0.0
        elif all(end is not None for end in ends):
            low, high = (float(end) for end in ends if end is not None)
        known = reader.op_type == "Relu" or low > -math.inf or high < math.inf
        reader = work.only_reader(reader.outputs[0]) if known else None
    y = quantized.codes_written(work.search, reader)
    if reader is None or y is None or reader.inputs[0] in work.fixed:
        return node, None, (-128, 127)
    bounds = (
        min(max(round(min(max(end / y.scale, -512), 512)) + y.byte_zero, -128), 127)
        for end in (low, high)
    )
    first, second = bounds
    return reader, y, (first, second)
