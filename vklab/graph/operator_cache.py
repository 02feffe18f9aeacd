"""What operators answered, so that a node like one before is not asked again.

A model of many equal layers asks the same hundreds of times, and so does each step from graph to
plan. Holds for one shape; nothing here knows an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from vklab.graph.graph import Graph, Node
from vklab.ops import registry
from vklab.types import TensorInfo

__all__ = ["SMALL_BYTES", "key", "remembered"]

# Constants up to this size are told apart by their bytes, others by being the same array.
SMALL_BYTES = 256
Inputs = Sequence[TensorInfo | None]


def key(graph: Graph, node: Node, inputs: Inputs) -> Hashable:
    """Return what decides a node's answer: operator, attributes, dtypes, shapes, known values.

    None if that cannot be told.
    """
    if node.bodies:
        return None
    attributes = tuple((name, type(value), value) for name, value in node.attributes.items())
    numbers = [id(info) for info in inputs]
    found = (
        node.op_type, node.domain, graph.opset_of(node), len(node.outputs), attributes,
        tuple(map(_signature, inputs)), tuple(map(numbers.index, numbers)),
    )  # fmt: skip
    try:
        hash(found)
    except TypeError:  # an attribute that is a tensor
        return None
    return found


def _signature(info: TensorInfo | None) -> Hashable:
    if info is None:
        return None
    value = info.constant
    if value is None:
        return info.dtype, info.shape
    is_small = value.nbytes <= SMALL_BYTES and value.dtype != np.dtype(object)
    return info.dtype, info.shape, value.tobytes() if is_small else id(value)


def remembered(
    graph: Graph, node: Node, inputs: Inputs, ask: Callable[[], registry.Answer]
) -> registry.Answer:
    """Return what `ask` answers, or what it answered to the same question about other inputs.

    Those are then the answer's own `inputs`. Answers that hold names of values are not kept.
    """
    asked = key(graph, node, inputs)
    found: registry.Answer | None = graph.answers.get(asked) if asked else None
    if found is None:
        found = ask()
        if asked and isinstance(found, registry.Result) and _is_general(found, inputs):
            # The inputs live as long as the answer: an id stands for nothing else till then.
            graph.answers[asked] = replace(found, inputs=tuple(inputs))
    return found


def _is_general(answer: registry.Result, inputs: Inputs) -> bool:
    known = {id(info) for info in inputs}
    return all(
        id(info) in known or not info.name for d in answer.dispatches for _, info in d.reads
    ) and not any(d.prologue or d.epilogue for d in answer.dispatches)
