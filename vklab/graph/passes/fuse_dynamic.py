"""fuse_dynamic: MatMulInteger or ConvInteger of a DynamicQuantizeLinear's codes, scaled, as one.

The product reads codes in words; Cast, Mul by both scales and Add of a bias become the end of its
kernel, which returns float32. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import fuse_quantized, quantized, rewriting
from vklab.graph.passes.quantized import Rewrite
from vklab.graph.passes.quantized_weights import BYTES, Weights
from vklab.ops import words_product
from vklab.types import TensorInfo

PRODUCTS = frozenset({"ConvInteger", "MatMulInteger"})


class _End(NamedTuple):
    """Last node of a scaled product, with the scale and the bias of each filter."""

    node: Node
    scales: np.ndarray
    bias: np.ndarray


def fuse_dynamic(graph: Graph) -> Graph:
    """Replace scaled products of dynamic codes by products of words.

    Source: ONNX Runtime, DynamicQuantizeMatMul-1, ConvIntegerToFloat
    """
    work = Rewrite(graph)
    for node in graph.nodes:
        if node.op_type == "DynamicQuantizeLinear" and not node.domain:
            _replace(work, node)
    return work.result()


def _replace(work: Rewrite, node: Node) -> None:
    """Replace the products of the codes that one node makes."""
    codes, scale, zero = (*node.outputs, "", "")[:3]
    for product in work.search.readers.get(codes, ()):
        is_product = product.op_type in PRODUCTS and not product.domain
        if is_product and scale and (product.inputs[0], *product.inputs[2:3]) == (codes, zero):
            _product(work, node.inputs[0], scale, product)


def _product(work: Rewrite, x: str, scale: str, product: Node) -> None:
    """Replace one product, if words can compute it.

    Args:
        work: the replacements.
        x: the value whose codes it reads.
        scale: the scale of these.
        product: a MatMulInteger or ConvInteger.
    """
    is_conv = product.op_type == "ConvInteger"
    codes = work.infos[product.inputs[1]].constant
    if codes is None or str(codes.dtype) not in BYTES or (not is_conv and codes.ndim != 2):
        return
    filters = codes.shape[0 if is_conv else 1]
    point = (*product.inputs, "", "")[3]
    zeros = _by_filter(work.infos[point], filters, 0) if point else np.zeros(filters, np.int8)
    end = _end(work, product, scale, filters, codes.ndim - 2 if is_conv else 0)
    form = fuse_quantized.form_of(work, product, x, filters)
    if zeros is None or end is None or form is None:
        return
    less_zeros = Weights(codes, zeros, end.scales, int(not is_conv)).less_zeros
    key = ("less zeros", int(not is_conv), zeros.tobytes())
    wide = constant_cache.derive(key, less_zeros, codes).reshape(form.shape)
    name = end.node.outputs[0]
    made = fuse_quantized.in_words(work, form, wide, name)
    if made is None:
        return
    table = words_product.filter_table(wide, 1, end.scales, end.bias)
    constants = (made[0], rewriting.constant(internal(name, "dynamic table"), table))
    packed = Node(
        internal(name, "dynamic quantize"),
        "DynamicWords",
        (form.source,),
        (internal(name, "dynamic packed"), internal(name, "dynamic scaling")),
        {"axis": form.axis},
        domain="vklab",
        opset=1,
    )
    read = (packed.outputs[0], *(info.name for info in constants), packed.outputs[1])
    steps = [
        packed,
        quantized.own(
            internal(name, "dynamic product"),
            form.op_type,
            read,
            name,
            **made[1],
            limits=(-128, 127),
            zeros=(0, 0),
            codes=0,
        ),
    ]
    if form.op_type == "ConvWords" and not is_conv:
        steps[1] = replace(steps[1], outputs=(internal(name, "dynamic image"),))
        steps.append(
            Node(
                internal(name, "dynamic flatten"),
                "Flatten",
                steps[1].outputs,
                (name,),
                {},
                opset=13,
            )
        )
    work.put(end.node, steps, constants)


def _end(work: Rewrite, product: Node, scale: str, filters: int, spatial: int) -> _End | None:
    """Return the end of a product that is cast to float32 and scaled; None for another one.

    Args:
        work: the replacements.
        product: a product of integers.
        scale: the scale of its left operand.
        filters: the number of its filters.
        spatial: the axes behind that of the filters.
    """
    cast = work.only_reader(product.outputs[0])
    is_cast = cast is not None and cast.op_type in ("Cast", "CastLike") and not cast.domain
    if cast is None or not is_cast or work.infos[cast.outputs[0]].dtype != "float32":
        return None
    scaled = work.only_reader(cast.outputs[0])
    step = _other(scaled, "Mul", cast.outputs[0])
    maker = work.search.makers.get(step)
    weight = _other(maker, "Mul", scale)
    scales = _by_filter(work.infos[weight], filters, spatial) if weight else None
    if scaled is None or scales is None or str(scales.dtype) != "float32":
        return None
    add = work.only_reader(scaled.outputs[0])
    name = _other(add, "Add", scaled.outputs[0])
    bias = _by_filter(work.infos[name], filters, spatial) if name else None
    if (
        add is None
        or bias is None
        or str(bias.dtype) != "float32"
        or (work.infos[add.outputs[0]].shape != work.infos[scaled.outputs[0]].shape)
    ):
        return _End(scaled, scales, np.zeros(filters, np.float32))
    return _End(add, scales, bias)


def _other(node: Node | None, op_type: str, name: str) -> str:
    """Return the other operand of a node that reads a value; "" if it is no such node."""
    if node is None or node.op_type != op_type or node.domain or name not in node.inputs:
        return ""
    return node.inputs[1 - node.inputs.index(name)]


def _by_filter(info: TensorInfo, filters: int, spatial: int) -> np.ndarray | None:
    """Return a constant as a number for each filter; None if it is something else.

    Args:
        info: the value.
        filters: the number of filters.
        spatial: the axes behind that of the filters.
    """
    if info.constant is None:
        return None
    axis = info.rank - 1 - spatial
    if info.count != 1 and (axis < 0 or info.dims[axis] != filters or info.count != filters):
        return None
    return np.broadcast_to(info.constant.reshape(-1), (filters,))
