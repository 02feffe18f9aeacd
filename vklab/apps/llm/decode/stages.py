"""Cut a language model's graph between layers: one part for each device that holds some of them.

Decides where a graph can be cut, and the bytes of each layer; `placing` decides how many layers a
device gets. Visited by lab 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from vklab.apps.llm.decode import memory
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

# A layer's attention, which reads and writes the layer's part of the cache.
ATTENTION, COUNTERS = "CacheAttention", "CacheCounters"


@dataclass(frozen=True)
class Stage:
    """Consecutive layers of a model, as a graph of their own.

    Attributes:
        graph: the graph. Its first output is the hidden state, except in the last stage.
        first: the number of its first layer.
        layers: the number of its layers.
    """

    graph: Graph
    first: int
    layers: int

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of the weights."""
        return sum(info.size_bytes for info in self.graph.initializers.values())

    def __str__(self) -> str:
        last = self.first + self.layers - 1
        return f"layer {last}" if self.layers == 1 else f"layers {self.first} to {last}"


def layer_count(graph: Graph) -> int:
    """Return the number of a model's layers."""
    return sum(node.op_type == ATTENTION for node in graph.nodes)


def split(graph: Graph, counts: Sequence[int], width: int) -> list[Stage]:
    """Return the stages of a model with a bounded cache; a stage without layers is left out.

    Every stage takes `lengths` and `counts`; the first one also takes `tokens`, the others take the
    hidden state of the stage before them.

    Args:
        graph: the model's graph.
        counts: the layers of each stage.
        width: the elements of the hidden state.
    """
    counts = [count for count in counts if count]
    if len(counts) == 1:
        return [Stage(graph, 0, counts[0])]
    cuts = _cuts(graph)
    batch = next(info.shape[0] for info in graph.inputs if info.name == "counts")
    ends = [*accumulate(counts)]
    marks = [(0, ""), *(cuts[end] for end in ends[:-1]), (len(graph.nodes), "")]
    made = []
    for number, ((start, taken), (end, given)) in enumerate(pairwise(marks)):
        hidden = TensorInfo(taken, "float32", (batch, "steps", width)) if taken else None
        part = _part(graph, graph.nodes[start:end], hidden, given)
        made.append(Stage(part, ends[number] - counts[number], counts[number]))
    return made


def _cuts(graph: Graph) -> list[tuple[int, str]]:
    """Return where each layer begins: the number of its first node, and the hidden state's name.

    A layer begins at the last place before its attention where a single value is still needed,
    beside counters, of which every part has its own.
    """
    counters = _counters(graph)
    last_read = {
        name: number
        for number, node in enumerate(graph.nodes)
        for name in node.reads
        if name not in counters
    }
    cuts, single, needed = list[tuple[int, str]](), (0, ""), set[str]()
    for number, node in enumerate(graph.nodes):
        if len(needed) == 1 and number:
            single = number, next(iter(needed))
        if node.op_type == ATTENTION:
            cuts.append(single)
        needed |= {name for name in node.outputs if last_read.get(name, -1) > number}
        needed -= {name for name in needed if last_read[name] <= number}
    return [(0, ""), *cuts[1:]]  # the embedding stays with the first layer


def _counters(graph: Graph) -> set[str]:
    """Return the names of values that are zeros before and after each attention, which counts."""
    made = {name for node in graph.nodes if node.op_type == COUNTERS for name in node.outputs}
    for node in graph.nodes:
        if node.op_type == ATTENTION and made.intersection(node.inputs):
            made.add(node.outputs[-1])
    return made


def _part(graph: Graph, nodes: tuple[Node, ...], hidden: TensorInfo | None, given: str) -> Graph:
    """Return some nodes of a graph as a graph.

    Args:
        graph: the graph.
        nodes: the nodes.
        hidden: the hidden state that they read; None for those of the first stage.
        given: the name of the hidden state that they make; "" for those of the last stage.
    """
    given_counters = _counters(graph)
    first = next((name for node in nodes for name in node.reads if name in given_counters), "")
    if first and not any(first in node.outputs for node in nodes):
        nodes = (Node(first, COUNTERS, ("lengths",), (first,), {}, "vklab", 1), *nodes)
    read = {name for node in nodes for name in node.reads}
    made = {name for node in nodes for name in node.outputs}
    inputs = tuple(info for info in graph.inputs if info.name in read)
    if hidden:
        inputs = (hidden, *inputs)
    outputs = tuple(name for name in graph.outputs if name in made)
    part = graph.with_nodes(nodes, inputs=inputs, outputs=(given, *outputs) if given else outputs)
    infos = {info.name: info for info in (*inputs, *part.initializers.values())}
    return replace(part, infos=infos)


def layer_bytes(graph: Graph, width: int) -> list[int]:
    """Return the bytes of weights and cache of each layer, without embedding and logits.

    Args:
        graph: the model's graph.
        width: the elements of the hidden state.
    """
    made = []
    for stage in split(graph, [1] * layer_count(graph), width):
        weights = (info for name, info in stage.graph.initializers.items() if "blk." in name)
        made.append(sum(info.size_bytes for info in weights) + memory.cache_bytes(stage.graph))
    return made
