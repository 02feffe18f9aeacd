"""Cache of what operators return for a node, so that equal nodes are analysed once.

Models repeat equal layers, and every step from graph to plan asks their operators again. The cache
lives as long as one `with active()` block: `plan.extend` opens one. Outside such a block, nothing
is cached. Visited by lab 09.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.graph.graph import Graph, Node
from vklab.ops import once, registry
from vklab.types import TensorInfo

# Constants up to this size are compared by their bytes, larger ones by identity; only that there is
# one counts for operators of weights in blocks, which have such names and never look at values.
SMALL_BYTES, BLOCKS = 256, "Blocks"
Inputs = Sequence[TensorInfo | None]
_entries: ContextVar[dict[Hashable, Any] | None] = ContextVar("operator_cache", default=None)


def active() -> AbstractContextManager[None]:
    """Cache results inside the `with` block; they are dropped at its end."""
    return settings.within(_entries, {})


def get(entry: Hashable) -> Any:
    """Return the result cached under a key; None if there is none."""
    entries = _entries.get()
    return entries.get(entry) if entries is not None else None


def put(entry: Hashable, value: Any) -> None:
    """Cache a result under a key, inside an `active` block."""
    entries = _entries.get()
    if entries is not None:
        entries[entry] = value


def key(graph: Graph, node: Node, inputs: Inputs, exact: bool = True) -> Hashable:
    """Return a key for an operator's answer; None for a node whose answer cannot be cached.

    Args:
        graph: the graph of the node, for its opset.
        node: the node; one with bodies or tensor attributes has no key.
        inputs: infos of the node's inputs with their constants, None where left out.
        exact: False to leave out which large constants the node reads.
    """
    if node.bodies:
        return None
    attributes = tuple(
        (name, type(x), once.same(x) if isinstance(x, tuple) and len(x) > once.LONG else x)
        for name, x in node.attributes.items()
    )
    exact = exact and not node.op_type.endswith(BLOCKS)
    numbers = [id(info) for info in inputs]
    entry = (
        node.op_type,
        node.domain,
        graph.opset_of(node),
        len(node.outputs),
        attributes,
        tuple(_signature(info, exact) for info in inputs),
        tuple(map(numbers.index, numbers)),
    )
    try:
        hash(entry)
    except TypeError:  # an attribute that is a tensor
        return None
    return entry


def _signature(info: TensorInfo | None, exact: bool) -> Hashable:
    if info is None:
        return None
    value = info.constant
    if value is None:
        return info.dtype, info.shape
    is_plain = type(value) is np.ndarray and not value.dtype.hasobject
    return (
        info.dtype,
        info.shape,
        (value.tobytes() if is_plain and value.nbytes <= SMALL_BYTES else exact and id(value)),
    )


def remembered(
    graph: Graph, node: Node, inputs: Inputs, ask: Callable[[], registry.Answer]
) -> registry.Answer:
    """Return the cached answer for an equal node, or the answer of `ask`.

    The dispatches of a cached answer read the tensors in its `inputs`, not those passed here;
    `lowering.lower` maps them by position. Answers that hold names of values are not cached.

    Args:
        graph: the graph of the node, for its opset.
        node: the node, for its operator, attributes and number of outputs.
        inputs: infos of the node's inputs, None where left out.
        ask: calls the operator.
    """
    entry = key(graph, node, inputs)
    answer: registry.Answer | None = get(entry) if entry else None
    if answer is None:
        answer = ask()
        if entry and isinstance(answer, registry.Result) and _is_general(answer, inputs):
            # Keeping the inputs alive keeps the ids in the key from being reused.
            put(entry, replace(answer, inputs=tuple(inputs)))
    return answer


def _is_general(answer: registry.Result, inputs: Inputs) -> bool:
    known = {id(info) for info in inputs}
    return not any(d.prologue or d.epilogue for d in answer.dispatches) and all(
        id(info) in known or not info.name for d in answer.dispatches for _, info in d.reads
    )
