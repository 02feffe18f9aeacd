"""join_words: keep codes in words between integer products; sums and maxima are taken of words.

PackWords(UnpackWords(x)) is x. Visited by lab 10.
"""

from __future__ import annotations

from dataclasses import replace

from vklab.base.names import internal
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import quantized
from vklab.graph.passes.matching import PatternSearch
from vklab.graph.passes.quantized import Rewrite
from vklab.ops.words import BYTES


def join_words(graph: Graph) -> Graph:
    """Remove words that are unpacked and packed again, and add and pool in words.

    Source: Muchnick 1997, "Advanced Compiler Design and Implementation" (algebraic simplification)
    """
    work = Rewrite(graph)
    for node in graph.nodes:
        if quantized.is_scaling(node, "QuantizeLinear"):
            _add(work, node)
    work = Rewrite(graph := work.result())  # a sum's codes are packed: not its float32
    for node in graph.nodes:
        if node.domain == "vklab" and node.op_type == "PackWords":
            _pack(work, node)
        elif quantized.is_scaling(node, "DequantizeLinear"):
            _dequantize(work, node)
    return work.result()


def _pack(work: Rewrite, node: Node) -> None:
    """Replace a PackWords by what its input is made from."""
    maker = work.search.makers.get(quantized.source(work.search, node.inputs[0]))
    axis, (made,) = node.attributes["axis"], node.outputs
    if maker is None:
        return
    if maker.op_type == "UnpackWords":
        if maker.attributes["axis"] == axis:
            work.put(node, [Node(node.name, "Identity", maker.inputs, (made,), opset=13)])
    elif codes := quantized.codes_written(work.search, maker):
        if work.infos[maker.inputs[0]].dtype == "float32":
            work.put(
                node,
                [
                    quantized.own(
                        node.name,
                        "QuantizeWords",
                        maker.inputs[:1],
                        made,
                        axis=axis,
                        scale=codes.scale,
                        zero=codes.byte_zero,
                    )
                ],
            )
    elif _pools_planes(work, maker) and axis == 1:
        inner = replace(
            node,
            name=internal(made, "inner"),
            inputs=maker.inputs,
            outputs=(internal(made, "before"),),
        )
        work.put(
            node,
            [
                inner,
                quantized.own(node.name, "MaxPoolWords", inner.outputs, made, **maker.attributes),
            ],
        )


def _pools_planes(work: Rewrite, node: Node) -> bool:
    """Tell whether a node is a MaxPool over one or two axes, of values alone."""
    is_pool = node.op_type == "MaxPool" and not node.domain and not any(node.outputs[1:])
    return is_pool and work.infos[node.outputs[0]].rank in (3, 4)


def _dequantize(work: Rewrite, node: Node) -> None:
    """Replace DequantizeLinear(UnpackWords) by one node, where words are not full."""
    x = quantized.codes_read(work.search, node.outputs[0])
    maker = work.search.makers.get(x.name) if x else None
    if x is None or maker is None or maker.op_type != "UnpackWords":
        return
    given = {name: maker.attributes[name] for name in ("axis", "size")}
    if given["size"] % BYTES:
        work.put(
            node,
            [
                quantized.own(
                    node.name,
                    "DequantizeWords",
                    maker.inputs,
                    node.outputs[0],
                    **given,
                    scale=x.scale,
                    zero=x.byte_zero,
                )
            ],
        )


def _add(work: Rewrite, node: Node) -> None:
    """Replace QuantizeLinear(Add(DequantizeLinear, DequantizeLinear)) by a sum of words."""
    y = quantized.codes_written(work.search, node)
    before = work.search.makers.get(node.inputs[0])
    is_relu = before is not None and before.op_type == "Relu" and not before.domain
    add = work.search.makers.get(before.inputs[0]) if before and is_relu else before
    if y is None or add is None or add.op_type != "Add" or add.domain:
        return
    a, b = (quantized.codes_read(work.search, name) for name in add.inputs)
    if (
        a is None
        or b is None
        or not (_is_unpacked(work.search, a.name) or _is_unpacked(work.search, b.name))
    ):
        return
    info = work.infos[a.name]
    makers = (work.search.makers.get(codes.name) for codes in (a, b))
    axis = next(
        maker.attributes["axis"]
        for maker in makers
        if maker is not None and maker.op_type == "UnpackWords"
    )
    if info.dims != work.infos[b.name].dims:
        return
    (name,) = node.outputs
    packs = [
        quantized.own(
            internal(name, f"added pack{i}"),
            "PackWords",
            (codes.name,),
            internal(name, f"added packed{i}"),
            axis=axis,
        )
        for i, codes in enumerate((a, b))
    ]
    added = quantized.own(
        internal(name, "added"),
        "AddWords",
        (packs[0].outputs[0], packs[1].outputs[0]),
        internal(name, "added sums"),
        scales=(a.scale / y.scale, b.scale / y.scale),
        zeros=(a.byte_zero, b.byte_zero, y.byte_zero),
        limits=(max(-128, y.byte_zero) if is_relu else -128, 127),
    )
    work.put(
        node,
        [
            *packs,
            added,
            quantized.own(
                internal(name, "added unpack"),
                "UnpackWords",
                added.outputs,
                name,
                axis=axis,
                size=info.dims[axis],
                dtype=y.dtype,
            ),
        ],
    )


def _is_unpacked(search: PatternSearch, name: str) -> bool:
    maker = search.makers.get(name)
    return maker is not None and maker.op_type == "UnpackWords"
