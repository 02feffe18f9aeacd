"""Small ONNX models for passes: products, two memory layouts, an If, a Loop; counts of plans.

Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import vklab
from vklab import settings
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab_course.children.run_limited import run_limited
from vklab_course.swap import swap
from vklab_labs.lab_10 import fusing, rewriting
from vklab_labs.shared import recorded_graphs

__all__ = ["chunks_of_if", "if_model", "imported", "kernel_counts", "layout_counts",
           "layout_model", "loop_model", "network", "plans_of_body", "product_model", "rounds",
           "runtime_dispatches"]  # fmt: skip

Value = onnx.ValueInfoProto


def _value(name: str, shape: Any = (4,), dtype: int = TensorProto.FLOAT) -> Value:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(
    name: str, nodes: list[onnx.NodeProto], inputs: list[Value], outputs: list[Value],
    **weights: Any,
) -> onnx.ModelProto:  # fmt: skip
    arrays = [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def imported(model: onnx.ModelProto) -> Graph:
    """Return a model as the graph that passes get: imported, with dtype and shape of each value."""
    return shapes.infer(onnx_import.load_graph(model))


def product_model(seed: int) -> onnx.ModelProto:
    """Return pairs of MatMuls by drawn weights, with an Identity between the two."""
    random = np.random.default_rng(seed)
    lines, weights, last, width = [], {}, "x", 32
    for block, inner in enumerate(random.permutation([64, 48, 4])):
        for name, shape in (("A", (width, inner)), ("B", (inner, width))):
            weights[f"{name}{block}"] = random.normal(size=shape) / np.sqrt(shape[0])
        lines += [
            f"a{block} MatMul {last} A{block}",
            f"i{block} Identity a{block}",
            f"b{block} MatMul i{block} B{block}",
            f"c{block} {random.choice(['Relu', 'Tanh', 'Neg'])} b{block}",
        ]
        last = f"c{block}"
    rows = int(random.integers(1, 9))
    graph = rewriting.graph_of("; ".join(lines), last, (rows, width), **weights)
    return rewriting.model({**graph, "name": f"products {seed}"})


def layout_model() -> onnx.ModelProto:
    """Return two convolutions in a model of channels-last values, with a Transpose at each border.

    ONNX's Conv wants channels first.
    """
    random = np.random.default_rng(0)
    to_first, to_last, pads = [0, 3, 1, 2], [0, 2, 3, 1], [1, 1, 1, 1]
    nodes = [
        helper.make_node("Transpose", ["x"], ["x1"], "first 1", perm=to_first),
        helper.make_node("Conv", ["x1", "w1"], ["c1"], "conv 1", pads=pads),
        helper.make_node("Transpose", ["c1"], ["l1"], "last 1", perm=to_last),
        helper.make_node("Relu", ["l1"], ["r"], "relu"),
        helper.make_node("Transpose", ["r"], ["x2"], "first 2", perm=to_first),
        helper.make_node("Conv", ["x2", "w2"], ["c2"], "conv 2", pads=pads),
        helper.make_node("Transpose", ["c2"], ["y"], "last 2", perm=to_last),
    ]
    return _model(
        "channels last",
        nodes,
        [_value("x", (1, 16, 16, 3))],
        [_value("y", (1, 16, 16, 4))],
        w1=random.normal(size=(8, 3, 3, 3)).astype("f4"),
        w2=random.normal(size=(4, 8, 3, 3)).astype("f4"),
    )


def layout_counts() -> dict[str, tuple[int, int, int]]:
    """Return Transposes, dispatches and bytes moved of `layout_model`, with and without a pass."""
    found = {}
    for words, switches in (
        ("neither", {"DISABLE_PASSES": "move_transposes", "DISABLE_FUSION": 1}),
        ("move_transposes", {"DISABLE_FUSION": 1}),
        ("fusion", {"DISABLE_PASSES": "move_transposes"}),
        ("both", {}),
    ):
        with settings.settings(**switches), vklab.load(layout_model()) as session:
            session.run({i.name: np.zeros(i.dims, i.dtype) for i in session.inputs})
            nodes = [node.op_type for chunk in session.plan.chunks for node in chunk.graph.nodes]
            steps = session.plan.dispatches
            size = sum(step.size_bytes for step in steps)
            found[words] = nodes.count("Transpose"), len(steps), size
    return found


def rounds(graph: Graph, steps: Sequence[Callable[[Graph], Graph]]) -> tuple[int, int]:
    """Return the rounds of passes until one changes nothing, with that one; and the nodes left."""
    count, before = 0, None
    while graph is not before:
        count, before = count + 1, graph
        for step in steps:
            graph = step(graph)
    return count, len(graph.nodes)


def if_model(known: bool) -> onnx.ModelProto:
    """Return a model of one If: Relu or Neg; its condition is a constant, or an input."""
    branches = {
        f"{word}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [word])], word, [], [_value(word)]
        )
        for word, op in (("then", "Relu"), ("else", "Neg"))
    }
    node = helper.make_node("If", ["c"], ["y"], "choose", **branches)
    given = [] if known else [_value("c", (), TensorProto.BOOL)]
    weights = {"c": np.array(True)} if known else {}
    return _model("if", [node], [_value("x"), *given], [_value("y")], **weights)


def chunks_of_if(known: bool) -> list[tuple[str, list[str]]]:
    """Return the place of each chunk of `if_model`, and the operators in it."""
    feed: dict[str, Any] = {"x": np.ones(4, np.float32)}
    with vklab.load(if_model(known)) as session:
        session.run(feed if known else {**feed, "c": np.array(False)})
        return [
            (
                "host" if isinstance(chunk.place, str) else "device",
                [node.op_type for node in chunk.graph.nodes],
            )
            for chunk in session.plan.chunks
        ]


def loop_model(growing: bool) -> onnx.ModelProto:
    """Return a model of one Loop; its value keeps its shape (Tanh), or doubles it (Concat)."""
    step = (
        helper.make_node("Concat", ["v", "v"], ["next"], axis=0)
        if growing
        else helper.make_node("Tanh", ["v"], ["next"])
    )
    shape = ("d",) if growing else (4,)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["still"]), step],
        "body",
        [
            _value("i", (), TensorProto.INT64),
            _value("go", (), TensorProto.BOOL),
            _value("v", shape),
        ],
        [_value("still", (), TensorProto.BOOL), _value("next", None if growing else shape)],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], "repeat", body=body)
    return _model(
        "loop",
        [node],
        [_value("n", (), TensorProto.INT64), _value("x")],
        [_value("y", None if growing else shape)],
    )


def plans_of_body(growing: bool, iterations: int = 4) -> list[int]:
    """Return how often a Loop's body is planned in a first run, and in a second one."""
    usual, graphs = passes.run, list[Graph]()

    def counted(graph: Graph, *given: Any) -> Graph:
        graphs.append(graph)
        return usual(graph, *given)

    found = []
    feed = {"n": np.array(iterations), "x": np.ones(4, np.float32)}
    with swap("vklab.graph.passes.run", counted), vklab.load(loop_model(growing)) as session:
        for _ in range(2):
            before = len(graphs)
            session.run(feed)
            found.append(len(graphs) - before)
    return found


def runtime_dispatches(name: str) -> int:
    """Return the dispatches that vklab's own fusion leaves of a recorded graph.

    Winograd's convolutions are left out: they are three dispatches, which no fusion has to do with.
    """
    graph = recorded_graphs.runtime_graph(name)
    inputs = {info.name: info for info in graph.inputs}
    with settings.settings(DISABLE_PASSES="winograd"):
        return len(plans.make_plan(graph, inputs, vklab.devices()[:1]).dispatches)


def network(name: str) -> tuple[fusing.Work, dict[str, int], tuple[str, ...]]:
    """Return the nodes, the sizes and the outputs of a recorded graph, to be put into groups."""
    return fusing.of_recorded(recorded_graphs.recorded(name))


def kernel_counts(
    fuse: Callable[..., Any], names: Sequence[str], most: int = 16, seconds: float = 15.0
) -> dict[str, dict[str, int]]:
    """Return kernels of recorded graphs: one for each node, vklab's, and those of an answer.

    Prints for each graph whether the groups are valid. An answer that was stopped counts 0.

    Args:
        fuse: the answer, a function as in exercise 10-4.
        names: the recorded graphs.
        most: most buffers of a kernel.
        seconds: time limit of the answer for each graph.
    """
    rows = {}
    for name in names:
        work, sizes, outputs = network(name)
        asked = run_limited(fuse, work, sizes, outputs, most, seconds=seconds)
        print(
            name,
            asked.message or fusing.broken_rule(work, outputs, most, asked.value) or "valid groups",
        )
        rows[name] = {
            "one node each": len(work),
            "vklab's fusion": runtime_dispatches(name),
            "your groups": len(asked.value or []),
            "cores": sum(fusing.is_core(op) for op, _ in work.values()),
        }
    return rows
