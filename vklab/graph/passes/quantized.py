"""Codes of a quantized model: 8-bit numbers with one scale and one zero point, and a rewriter.

The passes on DequantizeLinear and QuantizeLinear share these. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vklab.errors import VklabError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import rewriting
from vklab.graph.passes.matching import PatternSearch
from vklab.ops import registry, words
from vklab.types import TensorInfo

DOMAINS = ("", "com.microsoft")


@dataclass(frozen=True)
class Codes:
    """A value in codes of int8 or uint8: each means (code - zero) * scale."""

    name: str
    dtype: str
    scale: float
    zero: int

    @property
    def byte_zero(self) -> int:
        """Return the zero point of the codes as int8, which words hold."""
        return self.zero - 128 - words.CODES[self.dtype]


def is_scaling(node: Node | None, op_type: str) -> bool:
    """Tell whether a node is a QuantizeLinear or a DequantizeLinear, ONNX's or ONNX Runtime's."""
    return node is not None and node.op_type == op_type and node.domain in DOMAINS


def _codes(search: PatternSearch, node: Node, codes: str) -> Codes | None:
    """Return the codes on one side of a node with one constant scale and zero point."""
    info, scale = search.info(codes), search.info(node.inputs[1]).constant
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    point = search.info(zero).constant if zero else None
    if info.dtype not in words.CODES or scale is None or scale.size != 1:
        return None
    if str(scale.dtype) != "float32" or not float(scale.ravel()[0]) > 0:
        return None
    if zero and (point is None or point.size != 1):
        return None
    return Codes(
        codes, info.dtype, float(scale.ravel()[0]), 0 if point is None else int(point.ravel()[0])
    )


def codes_read(search: PatternSearch, name: str) -> Codes | None:
    """Return the codes from which a DequantizeLinear makes a value; None if none makes it."""
    maker = search.makers.get(name)
    if maker is None or not is_scaling(maker, "DequantizeLinear"):
        return None
    codes = source(search, maker.inputs[0])
    known = search.info(codes).constant is not None
    return None if known else _codes(search, maker, codes)


def source(search: PatternSearch, name: str) -> str:
    """Return the value that a value is, through any Identity."""
    while (maker := search.makers.get(name)) is not None and maker.op_type == "Identity":
        name = maker.inputs[0]
    return name


def codes_written(search: PatternSearch, node: Node | None) -> Codes | None:
    """Return the codes that a QuantizeLinear makes; None for any other node."""
    if node is None or not is_scaling(node, "QuantizeLinear"):
        return None
    return _codes(search, node, node.outputs[0])


def own(name: str, op_type: str, read: Iterable[str], made: str, **attributes: object) -> Node:
    """Return a node of one of vklab's own operators.

    Args:
        name: the node's name.
        op_type: the operator.
        read: its inputs.
        made: its output.
        attributes: its attributes.
    """
    return Node(name, op_type, tuple(read), (made,), attributes, domain="vklab", opset=1)


class Rewrite:
    """Replacements of nodes, collected while a graph is searched.

    Attributes:
        search: the graph, indexed.
        infos: infos of all values, the new ones included.
        fixed: values that keep their names.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.search = PatternSearch(graph)
        self.infos = dict(graph.infos)
        self.fixed = rewriting.fixed(graph)
        self._places: dict[int, tuple[Node, ...]] = {}
        self._new: list[TensorInfo] = []

    def only_reader(self, name: str) -> Node | None:
        """Return the node that alone reads a value; None if there are others, or it is fixed."""
        readers = self.search.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.fixed else None

    def put(self, old: Node, nodes: Sequence[Node], constants: Sequence[TensorInfo] = ()) -> bool:
        """Replace a node; tell whether the new nodes make an output of the same dtype and shape.

        Args:
            old: the node, whose output the last new node makes.
            nodes: the new nodes, in order.
            constants: their new constants.
        """
        if id(old) in self._places:
            return False
        infos = {info.name: info for info in constants}
        known = {**self.infos, **infos}
        for node in nodes:
            try:
                result, outputs = shapes.apply_node(self.graph, node, known)
            except VklabError:
                return False
            if not isinstance(result, registry.Result):
                return False
            made = {info.name: info for info in outputs if info.name}
            known |= made
            infos |= made
        before, after = self.infos[old.outputs[0]], infos[old.outputs[0]]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            return False
        self.infos |= infos
        self._new += infos.values()
        self._places[id(old)] = tuple(nodes)
        return True

    def result(self) -> Graph:
        """Return the graph with all replacements; nodes that nothing reads remain."""
        if not self._places:
            return self.graph
        nodes = (new for old in self.graph.nodes for new in self._places.get(id(old), (old,)))
        return rewriting.rewritten(self.graph, nodes, *self._new)
