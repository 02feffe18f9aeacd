"""Rules for host nodes: which operands ONNX Runtime must not get, as it would not come back.

It divides by zero, loops or allocates for hours on these, in this process, where nothing stops it.
What has no rule here is known to be refused by ONNX Runtime itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.graph.graph import Graph, Node
from vklab.ops.dtypes import INTEGERS
from vklab.types import ANY_SHAPE, TensorInfo

MOST_SKIPPED, MOST_INDEX = 1 << 16, 1 << 28
MOST_SAMPLES, MOST_WINDOW, MOST_DFT = 1 << 24, 1 << 28, 1 << 22
ANY = 1 << 63
Operands = Sequence[Any]
# Returns what is wrong with attributes and operands (None where left out), or "".
Rule = Callable[[Mapping[str, Any], Operands], str]


def _attribute(name: str, most: int, least: int = 0) -> Rule:
    """Return a rule that bounds an attribute, or all of its numbers."""
    return lambda attributes, _: _outside(name, attributes.get(name, least), least, most)


def _operand(number: int, name: str, most: int, least: int = 0) -> Rule:
    """Return a rule that bounds the numbers of an operand; one that is left out passes."""

    def rule(_: Mapping[str, Any], operands: Operands) -> str:
        value = operands[number] if number < len(operands) else None
        return "" if value is None else _outside(name, value, least, most)

    return rule


def _outside(name: str, value: Any, least: int, most: int) -> str:
    numbers = np.asarray(value)
    if not numbers.size or numbers.dtype.kind not in "iuf":  # ONNX Runtime refuses others
        return ""
    for number in (numbers.min(), numbers.max()):
        if not least <= number <= most:
            allowed = f"from {least} to {most}" if most < ANY else f"of at least {least}"
            return f"{name} reaches {number}; the host runs one {allowed}"
    return ""


def _kernel(_: Mapping[str, Any], operands: Operands) -> str:
    shape = np.shape(operands[1]) if len(operands) > 1 else ()
    return f"a kernel of shape {list(shape)} has no elements" if 0 in shape[2:] else ""


def _part_size(_: Mapping[str, Any], operands: Operands) -> str:
    split = operands[1] if len(operands) > 1 else None
    # A scalar is the size of all parts; a list has the size of each, and one may be empty.
    return _outside("split", split, 1, ANY) if split is not None and np.ndim(split) == 0 else ""


_RULES: dict[tuple[str, str], tuple[Rule, ...]] = {
    ("", "TfIdfVectorizer"): (_attribute("max_skip_count", MOST_SKIPPED),
                              _attribute("ngram_indexes", MOST_INDEX)),
    ("", "Multinomial"): (_attribute("sample_size", MOST_SAMPLES),),
    ("", "HannWindow"): (_operand(0, "size", MOST_WINDOW),),
    ("", "HammingWindow"): (_operand(0, "size", MOST_WINDOW),),
    ("", "BlackmanWindow"): (_operand(0, "size", MOST_WINDOW),),
    ("", "DFT"): (_operand(1, "dft_length", MOST_DFT),),
    ("", "STFT"): (_operand(1, "frame_step", ANY, 1),
                   _operand(3, "frame_length", MOST_DFT, 1)),
    ("", "SplitToSequence"): (_part_size,),
    ("", "Attention"): (_attribute("q_num_heads", ANY, 1),
                        _attribute("kv_num_heads", ANY, 1)),
    ("", "Conv"): (_kernel,),
    ("com.microsoft", "Attention"): (_attribute("qkv_hidden_sizes", ANY, 1),),
}  # fmt: skip


def require(graph: Graph, values: Mapping[str, Any]) -> None:
    """Raise ModelError for a node that ONNX Runtime must not get.

    Args:
        graph: the nodes: one, or several without a rule.
        values: the values that are known, by name; constants of the graph are known as well.
    """
    for node in graph.nodes:
        for rule in _RULES.get((node.domain, node.op_type), ()):
            problem = rule(node.attributes, _operands(graph, node, values))
            if problem:
                raise ModelError(f"node {node.name!r} ({node.qualified_type}): {problem}")


def traps(graph: Graph, values: Mapping[str, Any]) -> bool:
    """Tell whether ONNX Runtime would end the process in a division of integers.

    The least integer by -1 raises a signal on x86 processors; a divisor of zero did so until 1.17.

    Args:
        graph: the nodes: one, or several that divide no integers.
        values: as in `require`.
    """
    for node in graph.nodes:
        if any(_divides(inner, body) for body in node.bodies.values() for inner in _all(body)):
            return True
        if not _divides(node, graph):
            continue
        a, b = _operands(graph, node, values)
        if not isinstance(b, np.ndarray) or b.dtype.kind not in "iu":
            continue
        is_least = b.dtype.kind == "i" and np.any(a == np.iinfo(b.dtype).min) and np.any(b == -1)
        if is_least or not np.all(b):
            return True
    return False


def parts(graph: Graph) -> list[Graph]:
    """Return a graph of host nodes in parts: a node that has a rule is one, so that its operands
    are known when it runs; the nodes between two of them are another.
    """
    groups: list[list[Node]] = [[]]
    for node in graph.nodes:
        if (node.domain, node.op_type) in _RULES or _divides(node, graph):
            groups += [[node], []]
        else:
            groups[-1].append(node)
    groups = [group for group in groups if group]
    return [graph] if len(groups) < 2 else [_part(graph, group, groups) for group in groups]


def _part(graph: Graph, nodes: Sequence[Node], groups: Sequence[Sequence[Node]]) -> Graph:
    made = dict.fromkeys(name for node in nodes for name in node.outputs if name)
    read = dict.fromkeys(name for node in nodes for name in node.reads)
    others = {
        name for group in groups if group is not nodes for node in group for name in node.reads
    }
    constants = {name: info for name, info in graph.initializers.items() if name in read}
    return replace(
        graph,
        nodes=tuple(nodes),
        initializers=constants,
        inputs=tuple(
            graph.infos.get(name) or TensorInfo(name, "", ANY_SHAPE)
            for name in read
            if name not in made and name not in constants
        ),
        outputs=tuple(name for name in made if name in others or name in graph.outputs),
    )


def _divides(node: Node, graph: Graph) -> bool:
    """Tell whether a node may divide integers; its operands decide where dtypes are unknown."""
    if node.domain or node.op_type not in ("Div", "Mod"):
        return False
    known = [graph.infos[name].dtype for name in node.inputs if name in graph.infos]
    return all(dtype in INTEGERS or not dtype for dtype in known)


def _all(graph: Graph) -> list[Node]:
    """Return the nodes of a graph and of the bodies in it."""
    inner = [each for node in graph.nodes for body in node.bodies.values() for each in _all(body)]
    return [*graph.nodes, *inner]


def _operands(graph: Graph, node: Node, values: Mapping[str, Any]) -> Operands:
    constants = graph.initializers
    return [
        values[name] if name in values else constants[name].constant if name in constants else None
        for name in node.inputs
    ]
