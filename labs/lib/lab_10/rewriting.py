"""Small graphs as plain data, their values, and a student's rule as a pass of the runtime.

A graph is {"inputs": {name: (dtype, shape)}, "constants": {name: array}, "outputs": names,
"nodes": [(name of its value, operator, names that it reads, perm)]}; only a Transpose has a perm.
Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vklab.errors import VklabError
from vklab.graph import graph as graphs
from vklab.graph import passes, shapes
from vklab.graph.graph import Graph, Node
from vklab.graph.passes import drop_dead_nodes, drop_no_ops, move_transposes, rewriting
from vklab.ops.registry import Result
from vklab.types import TensorInfo
from vklab_course.piece import Given, Piece

__all__ = ["FIRST_PASS", "OPERATORS", "UNARY", "Info", "PlainGraph", "as_pass", "compute",
           "damaged", "draw_graph", "feed_of", "graph_of", "info_of", "infos_of", "model",
           "run"]  # fmt: skip

PlainGraph = dict[str, Any]
Info = tuple[str, tuple[int, ...]]
OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
    "MatMul": np.matmul, "Relu": lambda x: np.maximum(x, 0), "Neg": np.negative,
    "Tanh": np.tanh, "Identity": lambda x: x,
}  # fmt: skip
UNARY = ("Relu", "Neg", "Tanh", "Identity")

PERMS = ((1, 2, 0), (2, 0, 1), (0, 2, 1))
KINDS = ("Relu", "Tanh", "Neg", "Identity", "no-op", "no-op", "Transpose", "Transpose", "back",
         "Add", "fold", "fold")  # fmt: skip


def compute(op: str, arrays: Sequence[np.ndarray], perm: Sequence[int] = ()) -> np.ndarray:
    """Return the value of one node.

    Args:
        op: the operator; "Tanh>Add" is a Tanh and then an Add, as one kernel with an invocation
            for each element of the Tanh.
        arrays: the values that the node reads.
        perm: the order of the axes, of a Transpose.

    Raises ValueError for an unknown operator, and where the shapes do not fit.
    """
    first, *others = op.split(">")
    if not {first, *others} <= {*OPERATORS, "Transpose"}:
        raise ValueError(f"there is no operator {op!r}")
    with np.errstate(all="ignore"):
        if others:
            made = OPERATORS[first](arrays[0])
            return np.resize(OPERATORS[others[0]](made, *arrays[1:]), made.shape)
        made = np.transpose(arrays[0], perm) if first == "Transpose" else OPERATORS[first](*arrays)
    return np.asarray(made)


def run(graph: PlainGraph, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a graph for given inputs."""
    values = {**graph["constants"], **feed}
    for made, op, reads, perm in graph["nodes"]:
        values[made] = compute(op, [values[name] for name in reads], perm)
    return {name: values[name] for name in graph["outputs"]}


def info_of(op: str, infos: Sequence[Info], perm: Sequence[int] = ()) -> Info:
    """Return (dtype, shape) of a node's value. Raises ValueError as `compute` does.

    Args:
        op: the operator.
        infos: (dtype, shape) of each value that the node reads.
        perm: the order of the axes, of a Transpose.
    """
    made = compute(op, [np.zeros(shape, dtype) for dtype, shape in infos], perm)
    return str(made.dtype), made.shape


def infos_of(graph: PlainGraph) -> dict[str, Info]:
    """Return (dtype, shape) of every value of a graph; one from the runtime has its "infos"."""
    infos = {name: (dtype, tuple(shape)) for name, (dtype, shape) in graph["inputs"].items()}
    infos |= {name: (str(a.dtype), a.shape) for name, a in graph["constants"].items()}
    infos |= graph.get("infos", {})
    for made, op, reads, perm in graph["nodes"]:
        if made not in infos:
            infos[made] = info_of(op, [infos[name] for name in reads], perm)
    return infos


def graph_of(
    text: str, outputs: str = "y", shape: tuple[int, ...] = (2, 2, 2), **constants: Any
) -> PlainGraph:
    """Return a graph with the input x from "value operator reads" texts, as "y Add x k; ...".

    Args:
        text: the nodes; digits are the perm of a Transpose, as in "t Transpose x 120".
        outputs: the names of the outputs.
        shape: the shape of x.
        constants: the constants by name.
    """
    nodes = []
    for line in filter(None, map(str.strip, text.split(";"))):
        made, op, *rest = line.split()
        nodes.append(
            (
                made,
                op,
                tuple(name for name in rest if not name.isdigit()),
                tuple(int(digit) for name in rest if name.isdigit() for digit in name),
            )
        )
    arrays = {name: np.array(value, np.float32) for name, value in constants.items()}
    return {
        "inputs": {"x": ("float32", shape)},
        "constants": arrays,
        "outputs": outputs.split(),
        "nodes": nodes,
    }


def draw_graph(
    random: np.random.Generator, count: int, neutral: tuple[str, float] = ("Mul", 1.0),
    shape: tuple[int, ...] = (2, 2, 2),
) -> PlainGraph:  # fmt: skip
    """Draw a graph with no-ops, Transposes, constants to fold, dead nodes and inner outputs.

    Args:
        random: the source of chance.
        count: number of nodes; a folded constant adds the node that reads it.
        neutral: an operator, and the number for which it returns its first operand.
        shape: the shape of x.
    """
    graph = graph_of("", shape=shape, k=[0.5], n=[neutral[1]])
    known, nodes, infos = ["x"], graph["nodes"], infos_of(graph)
    turned: list[Any] = [("x", "", ("x",), (0, 1, 2))]
    for made in (f"v{n}" for n in random.permutation(3 * count)[:count]):
        source, kind = str(random.choice(known[-4:])), str(random.choice(KINDS))
        like = [name for name in known if infos[name] == infos[source]]
        last = turned[int(random.integers(max(0, len(turned) - 2), len(turned)))]
        node = {
            "no-op": (made, neutral[0], (source, "n"), ()),
            "Transpose": (made, kind, (source,), PERMS[int(random.integers(3))]),
            "back": (made, "Transpose", last[:1], tuple(map(int, np.argsort(last[3])))),
            "Add": (made, kind, (source, str(random.choice(like))), ()),
            "fold": (made, "Div" if neutral[1] else "Sub", ("k", "k"), ()),
        }.get(kind, (made, kind, (source,), ()))
        nodes.append(node)
        if kind == "fold":  # the constant is neutral: one reader is a no-op, another one is not
            node = f"{made}f", str(random.choice([neutral[0], "Add"])), (source, made), ()
            nodes.append(node)
        elif node[1] == "Transpose":
            turned.append(node)
        for name, op, reads, perm in nodes[-2:]:
            infos[name] = info_of(op, [infos[read] for read in reads], perm)
        known.append(node[0])
    graph["outputs"] = sorted({known[-1], known[int(random.integers(2, len(known)))]})
    return graph


def feed_of(graph: PlainGraph, seed: int) -> dict[str, np.ndarray]:
    """Return inputs for a graph; the first element is -0."""
    random = np.random.default_rng(seed)
    feed = {
        name: random.normal(size=shape).astype(dtype)
        for name, (dtype, shape) in graph["inputs"].items()
    }
    for array in feed.values():
        array.reshape(-1)[:1] = -0.0
    return feed


def damaged(random: np.random.Generator, graph: PlainGraph, fault: str) -> PlainGraph:
    """Return a graph as a wrong pass might leave it.

    Args:
        random: the source of chance.
        graph: the graph.
        fault: lost, moved or twice (a node), float64 (a constant), turned (an operator), inputs,
            outputs; new adds a node, and nothing is wrong.
    """
    nodes, inputs, outputs = list(graph["nodes"]), dict(graph["inputs"]), list(graph["outputs"])
    constants, at = dict(graph["constants"]), int(random.integers(len(graph["nodes"])))
    made, op, reads, perm = nodes[at]
    if fault == "lost":
        del nodes[at]
    elif fault == "moved":
        nodes.insert(int(random.integers(at, len(nodes))), nodes.pop(at))
    elif fault == "twice":
        nodes.append((made, "Relu", ("x",), ()))
    elif fault == "float64":
        constants["k"] = np.array([0.5])
    elif fault == "turned":
        nodes[at] = made, "Transpose", reads[:1], perm[::-1] or (2, 0, 1)
    elif fault == "inputs":
        inputs["x"] = "float32", (2, 3, 5)
    elif fault == "outputs":
        outputs = outputs[:-1] or ["x"]
    elif fault == "new":  # nothing is wrong
        nodes.insert(at, ("new", "Neg", ("x",), ()))
    return {"inputs": inputs, "constants": constants, "outputs": outputs, "nodes": nodes}


def model(graph: PlainGraph) -> onnx.ModelProto:
    """Return a graph as an ONNX model, with an opset that every supported operator is in."""
    infos = infos_of(graph)

    def declared(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.dtype(infos[name][0])), infos[name][1]
            )
            for name in names
        ]

    nodes = [
        helper.make_node(op, reads, [made], name=made, **({"perm": perm} if perm else {}))
        for made, op, reads, perm in graph["nodes"]
    ]
    weights = [numpy_helper.from_array(np.array(a), name) for name, a in graph["constants"].items()]
    made = helper.make_graph(
        nodes,
        graph.get("name", "graph"),
        declared(list(graph["inputs"])),
        declared(graph["outputs"]),
        weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def as_pass(rule: Callable[[PlainGraph], PlainGraph]) -> Callable[[Graph], Graph]:
    """Return a pass of the runtime that applies a rule on plain data, and verifies what it returns.

    A graph with a body, or with a node of several outputs, stays as it is: plain data has neither.
    The pass raises AssertionError with a sentence where the new graph is broken.
    """

    def pass_of_rule(graph: Graph) -> Graph:
        if any(len(node.outputs) != 1 or node.bodies for node in graph.nodes):
            return graph
        before = _plain(graph)
        after = rule(before)
        assert isinstance(after, dict) and {"nodes", "constants"} <= after.keys(), (
            "the rule returned no graph"
        )
        for node in after["nodes"]:
            assert isinstance(node, tuple | list) and len(node) == 4, f"{node!r} is no node"
        if [_listed(node) for node in before["nodes"]] == [*map(_listed, after["nodes"])]:
            return graph
        return _verified(graph, before, after)

    return pass_of_rule


def _plain(graph: Graph) -> PlainGraph:
    made = {name for node in graph.nodes for name in node.outputs}
    constants = {
        name: i.constant for name, i in graph.initializers.items() if i.constant is not None
    }
    read = dict.fromkeys(name for node in graph.nodes for name in node.reads)
    inputs = [name for name in read if name not in made and name not in constants]
    infos = {name: (info.dtype, info.dims) for name, info in graph.infos.items() if name in made}
    return {
        "inputs": {name: (graph.infos[name].dtype, graph.infos[name].dims) for name in inputs},
        "infos": infos,
        "constants": constants,
        "outputs": sorted(rewriting.fixed(graph)),
        "nodes": [
            (node.outputs[0], node.qualified_type, node.inputs, _perm(node)) for node in graph.nodes
        ],
    }


def _listed(node: Sequence[Any]) -> tuple[Any, ...]:
    made, op, reads, perm = node
    return made, op, tuple(reads), tuple(perm)


def _perm(node: Node) -> tuple[int, ...]:
    return tuple(node.attributes.get("perm", ())) if node.op_type == "Transpose" else ()


def _verified(graph: Graph, before: PlainGraph, after: PlainGraph) -> Graph:
    """Return the new graph. Raises AssertionError where the runtime's own checks refuse it."""
    old = {node.outputs[0]: node for node in graph.nodes}
    nodes = []
    for made, op, reads, perm in after["nodes"]:
        node = old.get(made)
        if node is None or (node.qualified_type, _perm(node)) != (op, tuple(perm)):
            node = Node(made, op, (), (made,), {"perm": tuple(perm)} if perm else {})
        nodes.append(replace(node, inputs=tuple(reads)))
    new = {
        name: rewriting.constant(name, np.asarray(array))
        for name, array in after["constants"].items()
        if name not in before["constants"]
    }
    try:
        ordered = graphs.topological_order(nodes, [*before["inputs"], *after["constants"]])
        assert ordered == tuple(nodes), "a node stands before one that it reads from"
        infos = _infos(graph, nodes, {**graph.infos, **new})
    except VklabError as error:
        raise AssertionError(f"the rule broke the graph: {error}") from None
    lost = set(before["outputs"]) - {node.outputs[0] for node in nodes} - infos.keys()
    assert not lost, f"the rule lost the output {min(lost)!r}"
    return rewriting.rewritten(graph, nodes, *new.values(), *infos.values())


def _infos(
    graph: Graph, nodes: Sequence[Node], known: dict[str, TensorInfo]
) -> dict[str, TensorInfo]:
    """Return infos of what the nodes make. Raises AssertionError for a changed dtype or shape."""
    infos: dict[str, TensorInfo] = {}
    for node in nodes:
        result, outputs = shapes.apply_node(graph, node, {**known, **infos})
        assert isinstance(result, Result), f"{node.op_type} of {node.outputs[0]!r} is no kernel"
        for info in outputs:
            old = known.get(info.name, info)
            assert (old.dtype, old.shape) == (info.dtype, info.shape), (
                f"the rule changed {info.name!r} from {old} to {info}"
            )
            infos[info.name] = info
    return infos


# ------------------------------------------------------------------- the piece of exercise 1


def _simplified(params: Mapping[str, Any]) -> Callable[[PlainGraph], PlainGraph]:
    """Return three of the runtime's passes behind the signature of exercise 1.

    The runtime folds constants while it cuts a graph into chunks, before any pass: there is no
    such pass of its own to put here.
    """

    def simplify(graph: PlainGraph) -> PlainGraph:
        whole = _runtime_graph(graph)
        for step, kinds in (
            (drop_no_ops.drop_no_ops, tuple(OPERATORS)),
            (move_transposes.move_transposes, ("Transpose",)),
        ):
            whole = step(_closed(whole, kinds))
        whole = drop_dead_nodes.drop_dead_nodes(whole)
        nodes = [(n.outputs[0], n.op_type, n.inputs, _perm(n)) for n in whole.nodes]
        used = {name for node in nodes for name in node[2]}
        constants = {name: a for name, a in graph["constants"].items() if name in used}
        return {**graph, "nodes": nodes, "constants": constants}

    return simplify


def _runtime_graph(graph: PlainGraph) -> Graph:
    infos = {name: TensorInfo(name, *info) for name, info in infos_of(graph).items()}
    weights = {name: rewriting.constant(name, a) for name, a in graph["constants"].items()}
    nodes = [
        Node(made, op, tuple(reads), (made,), {"perm": tuple(perm)} if perm else {})
        for made, op, reads, perm in graph["nodes"]
    ]
    inputs = tuple(infos[name] for name in graph["inputs"])
    outputs = tuple(graph["outputs"])
    return Graph("plain", 17, tuple(nodes), inputs, outputs, weights, {**infos, **weights})


def _closed(graph: Graph, kinds: Sequence[str]) -> Graph:
    """Return a graph in which a pass sees only these operators; results keep their makers.

    The plain form does not hold the attributes of other operators.
    """
    nodes = (
        replace(
            node,
            domain=""
            if node.op_type in kinds and node.outputs[0] not in graph.outputs
            else "closed",
        )
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def _passing(rule: Given) -> tuple[Callable[..., Graph], ...]:
    return as_pass(rule.value), *passes.PASSES


FIRST_PASS = Piece("passes", "vklab.graph.passes.PASSES", {"10-1": _simplified}, _passing, ())
