"""Escape the separator of internal names in the names of a model, which no exporter writes.

What is escaped has a `'` behind each separator, and no internal name has. Inputs and outputs keep
their names: users spell them.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx

from vklab.base.names import SEPARATOR
from vklab.errors import ModelError
from vklab.graph.graph import Graph


def escaped(proto: onnx.GraphProto, graph: Graph) -> onnx.GraphProto:
    """Return a copy of a model's graph in which no name can be an internal one.

    Args:
        proto: the graph as ONNX stores it.
        graph: the same as it was imported.

    Raises ModelError for an input or output that an internal name could be made of another name.
    """
    kept = {value.name for value in (*proto.input, *proto.output)}
    names = {name if name in kept else escape(name) for name in graph.names()}
    for name in sorted(kept):
        parts = name.split(SEPARATOR)
        starts = (SEPARATOR.join(parts[:end]) for end in range(1, len(parts)))
        for start in (each for each in starts if not each or each in names):
            raise ModelError(
                f"{name!r} could be the name of what vklab makes from {start!r}, with "
                f"{SEPARATOR!r} between them; give the input or output another name"
            )
    made = onnx.GraphProto()
    made.CopyFrom(proto)
    _rename(made, kept)
    return made


def escape(name: str) -> str:
    """Return a name of a model as no internal name is spelt; most names stay as they are."""
    return name.replace(SEPARATOR, f"{SEPARATOR}'")


def _rename(graph: onnx.GraphProto, kept: Collection[str]) -> None:
    values = (
        *graph.input,
        *graph.output,
        *graph.value_info,
        *graph.initializer,
        *(each.values for each in graph.sparse_initializer),
    )
    for value in values:
        value.name = value.name if value.name in kept else escape(value.name)
    for node in graph.node:
        node.name = escape(node.name)
        for names in (node.input, node.output):
            names[:] = [name if name in kept else escape(name) for name in names]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _rename(body, kept)
