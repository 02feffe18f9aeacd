"""merge_pads: make the zeros that a Pad adds around an image the padding of the Conv after it.

TensorFlow's exporters write a Pad before every strided convolution. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting


def merge_pads(graph: Graph) -> Graph:
    """Make each Conv after a Pad read the Pad's input, with wider pads of its own.

    Source: ONNX Conv-11, Pad-13
    """
    padded = {n.outputs[0]: n for n in graph.nodes if n.op_type == "Pad" and not n.domain}
    if not padded:
        return graph
    nodes = [
        _merged(graph, node, padded.get(node.inputs[0])) if node.op_type == "Conv" else node
        for node in graph.nodes
    ]
    if all(old is new for old, new in zip(graph.nodes, nodes, strict=True)):
        return graph
    read = {name for node in nodes for name in node.reads} | rewriting.fixed(graph)
    return rewriting.rewritten(
        graph, (n for n in nodes if n.outputs[0] not in padded or n.outputs[0] in read)
    )


def _merged(graph: Graph, node: Node, pad: Node | None) -> Node:
    pads = _zeros_around(graph, pad) if pad is not None else None
    if pad is None or pads is None or node.domain or not _is_finite(graph, node.inputs[1]):
        return node
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return node
    own = node.attributes.get("pads") or (0,) * len(pads)
    if node.attributes.get("auto_pad") == "VALID":
        own = (0,) * len(pads)
    wider = tuple(a + b for a, b in zip(own, pads, strict=True))
    attributes = {**node.attributes, "pads": wider, "auto_pad": "NOTSET"}
    return replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)


def _zeros_around(graph: Graph, pad: Node) -> Sequence[int] | None:
    """Return the pads of the spatial axes; None if a Pad adds other numbers, or to other axes."""
    if len(pad.inputs) < 2 or pad.attributes.get("mode", "constant") != "constant":
        return None  # before opset 11 the pads are attributes
    values = [graph.infos[name].constant if name else None for name in pad.inputs[1:]]
    named = [bool(name) for name in pad.inputs[1:]]
    pads, number, axes = (*values, None, None)[:3]
    _, has_number, has_axes = (*named, False, False)[:3]
    if pads is None or (has_number and (number is None or number.any())):
        return None
    rank = graph.infos[pad.inputs[0]].rank
    if has_axes and axes is None:
        return None
    padded = range(rank) if axes is None else [axis % rank for axis in axes.tolist()]
    ends = [[0] * rank, [0] * rank]
    for index, amount in enumerate(pads.tolist()):
        side, axis = divmod(index, len(padded))
        ends[side][padded[axis]] = amount
    if any(ends[0][:2]) or any(ends[1][:2]) or min(*ends[0], *ends[1]) < 0:
        return None
    return (*ends[0][2:], *ends[1][2:])


def _is_finite(graph: Graph, name: str) -> bool:
    """Tell whether a weight is constant and finite, so that zero times it is zero."""
    weight = graph.infos[name].constant
    if weight is None:
        return False
    finite = constant_cache.derive("is finite", lambda w: np.asarray(np.isfinite(w).all()), weight)
    return bool(finite)
