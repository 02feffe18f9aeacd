"""channels_last: compute convolutions and pools with the channels of a pixel side by side.

Transposes at their borders cancel between them (`move_transposes`); what they leave is counted, and
a graph where too much would remain is kept as it is. For GPUs. Visited by labs 08 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import (
    drop_no_ops,
    layouts,
    move_transposes,
    photographs,
    rewriting,
    turned_weights,
)
from vklab.graph.passes.photographs import Photograph
from vklab.ops import window
from vklab.ops.dtypes import FLOATS
from vklab.types import TensorInfo

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
# Channels that a kernel loads at once.
FOUR = 4
# Channels of a photograph, and filters from which on they are padded rather than left in planes.
COLOURS, MOST_ALONE = 3, 32
# Filters from which on one channel is convolved into channels-last images.
FEWEST_FILTERS = 16
# Every device can bind this much; a longer tensor is cut only in the model's layout.
MOST_BYTES = 1 << 27
# Elements that may be transposed for each one that a converted convolution writes.
MOST_MOVED = 0.25


def channels_last(graph: Graph, width: int = FOUR) -> Graph:
    """Rewrite convolutions and pools for channels-last images, if few Transposes remain.

    A photograph's three channels are padded to `width`: a load of a kernel.

    Source: Anderson and Gregg 2018, "Optimal DNN Primitive Selection with Partitioned Boolean
    Quadratic Programming" (layout transitions as costs)
    """
    work = _Rewriter(graph, width)
    for node in graph.nodes:
        work.visit(node)
    if not work.written:
        return graph
    turned = rewriting.rewritten(graph, work.nodes, *work.new)
    for step in (
        move_transposes.move_transposes,
        drop_no_ops.drop_no_ops,
        turned_weights.turn_weights,
    ):
        turned = step(turned)
    more = _moved(turned) - _moved(graph)
    return turned if more <= MOST_MOVED * work.written else graph


def _moved(graph: Graph) -> int:
    """Return the elements that Transposes move, but for those that only rename axes."""
    count = 0
    for node in graph.nodes:
        if node.op_type == "Transpose" and not node.domain:
            info = graph.infos[node.inputs[0]]
            long = [a for a in layouts.permutation(node, info.rank) if info.dims[a] != 1]
            count += info.count if long != sorted(long) else 0
    return count


class _Rewriter:
    """One traversal of the nodes; `written` counts the elements that new convolutions write."""

    def __init__(self, graph: Graph, width: int) -> None:
        self.graph, self.infos, self.width = graph, graph.infos, width
        self.nodes: list[Node] = []
        self.new: list[TensorInfo] = []
        self.written = 0
        self.rules: dict[str, Callable[[Node], bool]] = {
            "Conv": self._conv,
            "MaxPool": self._pool,
            "AveragePool": self._pool,
            "GlobalAveragePool": self._mean,
            "ReduceMean": self._mean,
        }

    def visit(self, node: Node) -> None:
        """Add a node, rewritten where a rule applies."""
        rule = self.rules.get(node.op_type)
        if node.domain or rule is None or not self._is_image(node) or not rule(node):
            self.nodes.append(node)

    def _is_image(self, node: Node) -> bool:
        """Tell whether the first input and the only output are images that any device can bind."""
        both = [self.infos[name] for name in (node.inputs[0], node.outputs[0])]
        return not any(node.outputs[1:]) and all(
            i.rank == 4 and i.is_static and i.dtype in FLOATS and 0 < i.size_bytes <= MOST_BYTES
            for i in both
        )

    def _value(self, name: str, dims: tuple[int, ...], dtype: str) -> str:
        self.new.append(TensorInfo(name, dtype, dims))
        return name

    def _begin(self, node: Node, photo: Photograph | None = None) -> str:
        """Add the Transpose of a node's first input, or pad a photograph; return the result."""
        source, made = self.infos[node.inputs[0]], node.outputs[0]
        batch, height, line, channels = (source.dims[axis] for axis in LAST)
        operator: tuple[str, dict[str, Any]] = ("Transpose", {"perm": LAST})
        dims = batch, height, line, channels
        if photo:
            dims = batch, height, line // photo.joined, photo.width * photo.joined
            operator = "PadLast", {"width": photo.width, "joined": photo.joined}
        name = self._value(internal(made, "in"), dims, source.dtype)
        self.nodes.append(
            Node(
                name,
                operator[0],
                (source.name,),
                (name,),
                operator[1],
                domain="vklab" if photo else "",
            )
        )
        return name

    def _end(self, node: Node) -> str:
        """Return the name of a node's channels-last result; `_close` transposes it."""
        made = self.infos[node.outputs[0]]
        dims = tuple(made.dims[axis] for axis in LAST)
        return self._value(internal(made.name, "last"), dims, made.dtype)

    def _close(self, node: Node) -> bool:
        made = node.outputs[0]
        self.nodes.append(
            Node(
                internal(made, "out"),
                "Transpose",
                (internal(made, "last"),),
                (made,),
                {"perm": FIRST},
            )
        )
        return True

    def _view(self, node: Node) -> window.Window:
        """Return the window of a convolution or a pool, with its pads resolved."""
        given, dims = node.attributes, self.infos[node.inputs[0]].dims[2:]
        kernel = given.get("kernel_shape") or self.infos[node.inputs[1]].dims[2:]
        strides, dilations, pads = (given.get(name) for name in ("strides", "dilations", "pads"))
        return window.resolve(
            dims,
            kernel,
            strides,
            dilations,
            pads,
            given.get("auto_pad", "NOTSET"),
            given.get("ceil_mode", 0),
        )

    def _conv(self, node: Node) -> bool:
        weight, group = self.infos[node.inputs[1]], node.attributes.get("group", 1)
        view = self._view(node)
        filters, depth = weight.dims[:2]
        is_photo = depth == COLOURS and filters >= MOST_ALONE and group == 1
        photo = photographs.seen(view, self.width) if is_photo else None
        if weight.constant is None or not (photo or _is_fast(weight.dims, group, view)):
            return False

        def laid_out(array: np.ndarray) -> np.ndarray:
            if photo:
                return photo.laid_out(array)
            return np.ascontiguousarray(array.transpose(2, 3, 1, 0))

        array = constant_cache.derive(("channels last", photo), laid_out, weight.constant)
        self.new.append(rewriting.constant(internal(weight.name, "last"), array))
        inputs = (self._begin(node, photo), self.new[-2].name, *node.inputs[2:])
        attributes = {
            "dilations": view.dilations,
            "group": group,
            "strides": view.strides,
            "pads": (*view.pads_begin, *view.pads_end),
        }
        if photo:
            attributes |= {"strides": photo.strides, "pads": photo.pads}
        self.nodes.append(
            Node(
                node.name,
                "ChannelsLastConv",
                inputs,
                (self._end(node),),
                attributes,
                domain="vklab",
            )
        )
        self.written += self.infos[node.outputs[0]].count
        return self._close(node)

    def _pool(self, node: Node) -> bool:
        """Pool over height, width and a window of one channel: images are volumes of one plane."""
        view, (batch, _, *_) = self._view(node), self.infos[node.inputs[0]].dims
        source, last = self._begin(node), self._end(node)
        before, after = (info.dims for info in self.new[-2:])
        dtype = self.infos[node.outputs[0]].dtype
        volume, pooled = internal(last, "volume"), internal(last, "pooled")
        for name, dims in ((volume, before), (pooled, after)):
            self._value(name, (batch, 1, *dims[1:]), dtype)
        attributes = {name: value for name, value in node.attributes.items() if name != "auto_pad"}
        attributes |= {
            "kernel_shape": (*view.kernel, 1),
            "strides": (*view.strides, 1),
            "pads": (*view.pads_begin, 0, *view.pads_end, 0),
        }
        if "dilations" in attributes:
            attributes["dilations"] = (*view.dilations, 1)
        made = {info.name: info for info in self.new}
        begin, shape = rewriting.reshape(self.graph, source, made[volume])
        end, final = rewriting.reshape(self.graph, pooled, made[last])
        self.new += [shape, final]
        self.nodes += [
            begin,
            replace(node, inputs=(volume,), outputs=(pooled,), attributes=attributes),
            end,
        ]
        return self._close(node)

    def _mean(self, node: Node) -> bool:
        """Take the mean of each channel, if that is what a node does."""
        if self.infos[node.outputs[0]].dims != (*self.infos[node.inputs[0]].dims[:2], 1, 1):
            return False
        self.nodes.append(
            Node(
                node.name,
                "ReduceMean",
                (self._begin(node),),
                (self._end(node),),
                {"axes": (1, 2), "keepdims": 1},
                opset=13,
            )
        )
        return self._close(node)


def _is_fast(dims: tuple[int, ...], group: int, view: window.Window) -> bool:
    """Tell whether a convolution has a fast kernel for channels-last images.

    Args:
        dims: the shape of its weights.
        group: the number of groups.
        view: its window.
    """
    filters, depth = dims[:2]
    if depth == group == 1:
        return filters >= FEWEST_FILTERS
    if group > 1:
        return (depth == 1 and filters == group) or not (depth % FOUR or filters // group % FOUR)
    is_point = set(view.kernel) | set(view.strides) == {1} and not any(view.pads_begin)
    return (max(view.input) == 1 and is_point) or (
        depth % FOUR == 0 and (is_point or filters % FOUR == 0)
    )
