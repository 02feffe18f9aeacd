"""fold_batch_norm: fold constant factors and shifts per channel into the weights before them.

A BatchNormalization with constant statistics is a Mul and an Add by now; after a Conv,
ConvTranspose or Gemm both become free. Changes rounding. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.types import TensorInfo

FOLDS = frozenset({"Conv", "ConvTranspose", "Gemm"})
DTYPES = frozenset({"float16", "float32", "float64"})


@dataclass(frozen=True)
class _Chain:
    """Nodes that compute y * scale + shift per channel of a result y; both arrays are float64."""

    scale: np.ndarray
    shift: np.ndarray
    nodes: tuple[Node, ...]


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold constant factors and shifts per channel into the node that makes the channels.

    Source: ONNX BatchNormalization-15; Jacob et al. 2018, "Quantization and Training of Neural
    Networks for Efficient Integer-Arithmetic-Only Inference", section 3.2
    """
    readers = graph.readers()
    fixed = rewriting.fixed(graph)
    changed: dict[str, Node] = {}
    gone: set[str] = set()
    new: list[TensorInfo] = []
    for node in graph.nodes:
        if node.op_type not in FOLDS or node.domain:
            continue
        chain = _chain(graph, node, readers, fixed)
        weights = _weights(graph, node, chain) if chain.nodes else ()
        if weights:
            inputs = (node.inputs[0], *(info.name for info in weights))
            outputs = chain.nodes[-1].outputs
            changed[node.outputs[0]] = replace(node, inputs=inputs, outputs=outputs)
            gone.update(part.outputs[0] for part in chain.nodes)
            new += weights
    if not changed:
        return graph
    nodes = (changed.get(n.outputs[0], n) for n in graph.nodes if n.outputs[0] not in gone)
    return rewriting.rewritten(graph, nodes, *new)


def _chain(graph: Graph, node: Node, readers: Mapping[str, list[Node]], fixed: set[str]) -> _Chain:
    """Return the longest chain of Muls and Adds by channel constants after a node."""
    made = graph.infos[node.outputs[0]]
    channels = made.dims[1]
    scale, shift = np.ones(channels), np.zeros(channels)
    nodes: list[Node] = []
    name = made.name
    while name not in fixed and len(readers.get(name, ())) == 1:
        reader = readers[name][0]
        if reader.op_type not in ("Mul", "Add") or reader.domain:
            break
        other = reader.inputs[1] if reader.inputs[0] == name else reader.inputs[0]
        values = _per_channel(graph.infos[other], made)
        if values is None or graph.infos[reader.outputs[0]].shape != made.shape:
            break
        if reader.op_type == "Mul":
            scale, shift = scale * values, shift * values
        else:
            shift = shift + values
        nodes.append(reader)
        name = reader.outputs[0]
    return _Chain(scale, shift, tuple(nodes))


def _per_channel(value: TensorInfo, made: TensorInfo) -> np.ndarray | None:
    """Return a constant as one number per channel; None if it does not vary by channel only."""
    if value.constant is None or value.rank > made.rank or value.dtype not in DTYPES:
        return None
    shape = (1,) * (made.rank - value.rank) + value.dims
    channels = made.dims[1]
    if value.count not in (1, channels) or shape[1] != value.count:
        return None
    return np.broadcast_to(value.constant.reshape(-1).astype(np.float64), (channels,))


def _weights(graph: Graph, node: Node, chain: _Chain) -> tuple[TensorInfo, ...]:
    """Return the weights and the bias with a chain folded in; () if they cannot hold it."""
    weight = graph.infos[node.inputs[1]]
    bias = graph.infos[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None
    given = None if bias is None else bias.constant
    beta = node.attributes.get("beta", 1.0)
    # Gemm multiplies its bias C by beta, and a C with one number per row has none per channel.
    is_plain = beta == 1 and (bias is None or bias.dims == (len(chain.scale),))
    if weight.constant is None or weight.dtype not in DTYPES or not is_plain:
        return ()
    if bias is not None and given is None:
        return ()
    name = chain.nodes[-1].outputs[0]
    scaled = weight
    if (chain.scale != 1).any():
        key = ("scale", node.op_type, *_layout(node), chain.scale.tobytes())
        function = partial(_scaled, op_type=node.op_type, layout=_layout(node), scale=chain.scale)
        array = constant_cache.derive(key, function, weight.constant)
        scaled = rewriting.constant(internal(name, "normalized weights"), array)
    key = ("shift", chain.scale.tobytes(), chain.shift.tobytes(), weight.dtype)
    function = partial(_shifted, chain=chain, dtype=weight.dtype)
    source = weight.constant if given is None else given
    array = constant_cache.derive((*key, given is None), function, source)
    return scaled, rewriting.constant(internal(name, "normalized bias"), array)


def _layout(node: Node) -> tuple[int, ...]:
    return node.attributes.get("group", 1), node.attributes.get("transB", 0)


def _scaled(
    weight: np.ndarray, *, op_type: str, layout: tuple[int, ...], scale: np.ndarray
) -> np.ndarray:
    """Return the weights of each output channel multiplied by the channel's factor."""
    groups, transposed = layout
    if op_type == "Gemm":
        factors = scale[:, None] if transposed else scale
    elif op_type == "Conv":
        factors = scale.reshape(-1, *[1] * (weight.ndim - 1))
    else:  # ConvTranspose, [C, M/group, ...]: each group of inputs makes its own channels
        each = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
        factors = each.reshape(*each.shape, *[1] * (weight.ndim - 2))
    return (weight * factors).astype(weight.dtype)


def _shifted(source: np.ndarray, *, chain: _Chain, dtype: str) -> np.ndarray:
    """Return a chain's bias; `source` is the old bias, or the weights where there is none."""
    old = source if source.ndim == 1 else np.zeros(1)
    return (old * chain.scale + chain.shift).astype(dtype)
