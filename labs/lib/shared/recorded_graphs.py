"""Recorded graphs of known networks, as plain data: cut, renamed, shuffled and resized by seed.

The files of `data/graphs` have no weights; `data/make_graphs.py` wrote them. Visited by labs 09 to
13.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import onnx

from vklab.graph import onnx_import
from vklab.graph.graph import Graph
from vklab.types import TensorInfo
from vklab_course.data import data

__all__ = ["NAMES", "RecordedGraph", "RecordedNode", "irregular", "recorded", "runtime_graph"]

NAMES = ("resnet50", "inception_v1", "shufflenet_v2", "unet", "bert_base")
Shape = tuple[int, ...]
# What the dispatched kernels of these operators multiply; all others count their results.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class RecordedNode:
    """One node: its operator, the values that it reads and writes, and the floating-point work."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int = 0


@dataclass(frozen=True)
class RecordedGraph:
    """Nodes in topological order, with dtype and shape of every value.

    Attributes:
        name: the network.
        nodes: the nodes.
        shapes: shape of every value, weights included.
        dtypes: dtype of every value, as NumPy names it.
        inputs: values that the caller gives.
        outputs: values that the caller gets.
        weights: values that the model file holds.
    """

    name: str
    nodes: tuple[RecordedNode, ...]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: frozenset[str] = field(default_factory=frozenset)

    def size_bytes(self, value: str) -> int:
        """Return the bytes of a value."""
        return math.prod(self.shapes[value]) * np.dtype(self.dtypes[value]).itemsize

    def activations(self, node: RecordedNode) -> tuple[str, ...]:
        """Return the inputs of a node that are no weights, each once."""
        return tuple(dict.fromkeys(name for name in node.inputs if name not in self.weights))

    def weights_bytes(self, node: RecordedNode) -> int:
        """Return the bytes of the weights that a node reads."""
        return sum(map(self.size_bytes, set(node.inputs) & self.weights))

    def makers(self) -> dict[str, str]:
        """Return the name of the node that makes each value."""
        return {value: node.name for node in self.nodes for value in node.outputs}

    def predecessors(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the nodes that each node reads from, in node order."""
        makers = self.makers()
        return {
            node.name: tuple(
                dict.fromkeys(makers[value] for value in node.inputs if value in makers)
            )
            for node in self.nodes
        }

    def renamed(self, random: np.random.Generator) -> RecordedGraph:
        """Return the graph with random names: n0, n1 ... for nodes, v0, v1 ... for values."""
        values = list(self.shapes)
        new = {old: f"v{n}" for old, n in zip(values, random.permutation(len(values)), strict=True)}
        numbers = random.permutation(len(self.nodes))
        nodes = tuple(
            replace(
                node,
                name=f"n{n}",
                inputs=tuple(new[i] for i in node.inputs),
                outputs=tuple(new[o] for o in node.outputs),
            )
            for node, n in zip(self.nodes, numbers, strict=True)
        )
        return RecordedGraph(
            self.name,
            nodes,
            {new[k]: v for k, v in self.shapes.items()},
            {new[k]: v for k, v in self.dtypes.items()},
            tuple(new[i] for i in self.inputs),
            tuple(new[o] for o in self.outputs),
            frozenset(new[w] for w in self.weights),
        )

    def shuffled(self, random: np.random.Generator) -> RecordedGraph:
        """Return the graph with its nodes in a random topological order."""
        waits = {name: len(before) for name, before in self.predecessors().items()}
        frees: dict[str, list[str]] = {}
        for name, before in self.predecessors().items():
            for other in before:
                frees.setdefault(other, []).append(name)
        by_name = {node.name: node for node in self.nodes}
        ready, order = [name for name, count in waits.items() if not count], []
        while ready:
            name = ready.pop(int(random.integers(len(ready))))
            order.append(by_name[name])
            for other in frees.get(name, ()):
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        return replace(self, nodes=tuple(order))

    def part(self, random: np.random.Generator, count: int) -> RecordedGraph:
        """Return `count` neighbouring nodes: a window of the topological order, so it is convex.

        Values from outside become inputs, values that are read outside become outputs.
        """
        first = int(random.integers(len(self.nodes) - count + 1))
        return self.window(first, first + count)

    def window(self, first: int, last: int) -> RecordedGraph:
        """Return the nodes from number `first` up to, not including, number `last`."""
        nodes = self.nodes[first:last]
        made = {value for node in nodes for value in node.outputs}
        read = dict.fromkeys(value for node in nodes for value in node.inputs)
        others = [node for number, node in enumerate(self.nodes) if not first <= number < last]
        wanted = {value for node in others for value in node.inputs} | set(self.outputs)
        kept = made | set(read)
        return replace(
            self,
            nodes=nodes,
            shapes={k: v for k, v in self.shapes.items() if k in kept},
            dtypes={k: v for k, v in self.dtypes.items() if k in kept},
            inputs=tuple(v for v in read if v not in made and v not in self.weights),
            outputs=tuple(v for node in nodes for v in node.outputs if v in wanted),
            weights=self.weights & kept,
        )


def recorded(name: str, batch: int = 0, size: int = 0) -> RecordedGraph:
    """Return a recorded graph with another batch and another size.

    Args:
        name: one of NAMES.
        batch: number of images (recorded: 1) or of texts (2).
        size: height and width of an image (224), or number of tokens of a text (128).

    Raises ValueError for a size that leaves a dimension that is no whole number; multiples of 32
    leave none.
    """
    model, weights, axes = _file(name)
    graph = model.graph
    dims = graph.input[0].type.tensor_type.shape.dim
    pairs = zip("NS", (batch, size), (dims[0].dim_value, dims[-1].dim_value), strict=True)
    factors = {letter: Fraction(new or old, old) for letter, new, old in pairs} | {".": Fraction(1)}

    def resized(value: str, shape: Shape) -> Shape:
        sizes = [dim * factors[letter] for dim, letter in zip(shape, axes[value], strict=True)]
        if any(exact.denominator > 1 for exact in sizes):
            text = ", ".join(map(str, sizes))
            raise ValueError(f"{name}: size {size} gives {value} the shape [{text}]")
        return tuple(map(int, sizes))

    shapes, dtypes = {}, {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        shapes[info.name] = resized(info.name, shape) if info.name in axes else shape
        dtypes[info.name] = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    for tensor in graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
        dtypes[tensor.name] = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    constants = frozenset((*weights, *(tensor.name for tensor in graph.initializer)))
    nodes = tuple(
        RecordedNode(
            node.name,
            node.op_type,
            tuple(filter(None, node.input)),
            tuple(node.output),
            _flops(
                node.op_type, [shapes[i] for i in node.input if i], [shapes[o] for o in node.output]
            ),
        )
        for node in graph.node
    )
    inputs = tuple(info.name for info in graph.input if info.name not in constants)
    outputs = tuple(info.name for info in graph.output)
    return RecordedGraph(name, nodes, shapes, dtypes, inputs, outputs, constants)


def _flops(op_type: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    results = sum(map(math.prod, outputs))
    if op_type not in PRODUCTS:
        return results
    if op_type == "ConvTranspose":
        return 2 * math.prod(inputs[0]) * math.prod(inputs[1][1:])
    if op_type == "Conv":
        return 2 * results * math.prod(inputs[1][1:])
    return 2 * results * inputs[0][-1]


@functools.cache
def _file(name: str) -> tuple[onnx.ModelProto, frozenset[str], Mapping[str, str]]:
    """Return the model of a file, the names of its weights, and the axes of its values."""
    if name not in NAMES:
        raise ValueError(f"there is no recorded graph {name!r}; choose from {', '.join(NAMES)}")
    model = onnx.load(data(f"graphs/{name}.onnx"))
    facts = {each.key: json.loads(each.value) for each in model.metadata_props}
    return model, frozenset(facts["weights"]), facts["axes"]


def runtime_graph(name: str) -> Graph:
    """Return a recorded graph as the runtime imports it; its weights are zeros without memory."""
    model, weights, _ = _file(name)
    graph = onnx_import.load_graph(model)
    zeros = {
        info.name: replace(info, constant=np.broadcast_to(np.zeros((), info.dtype), _static(info)))
        for info in graph.inputs
        if info.name in weights
    }
    return replace(
        graph,
        inputs=tuple(info for info in graph.inputs if info.name not in weights),
        initializers={**graph.initializers, **zeros},
        infos={**graph.infos, **zeros},
    )


def _static(info: TensorInfo) -> Shape:
    return tuple(int(dim) for dim in info.shape)


def irregular(
    random: np.random.Generator, count: int, reads: Iterable[int] = (1, 1, 2, 2, 3), reach: int = 6
) -> list[tuple[int, ...]]:
    """Return an irregular wiring: for each node the numbers of the nodes that it reads from.

    Every node but the last few is read. Node 0 reads nothing.

    Args:
        random: the source of chance.
        count: number of nodes.
        reads: how many nodes one node may read from; one of them is drawn for each node.
        reach: how many nodes back a node may read.
    """
    choices = list(reads)
    wiring: list[tuple[int, ...]] = []
    unread: set[int] = set()
    for number in range(count):
        near = list(range(max(0, number - reach), number))
        wanted = min(int(random.choice(choices)), len(near))
        late = [n for n in near if n in unread and n <= number - reach]  # else never read
        chosen = {*late, *map(int, random.permutation(near)[:wanted])}
        wiring.append(tuple(sorted(chosen)))
        unread = (unread - chosen) | {number}
    return wiring
