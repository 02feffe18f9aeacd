"""All graph passes on all graphs: idempotent, with the same results on, off, and one by one."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from support.graphs import pass_graphs
from support.graphs.pass_graphs import GRAPHS
from support.models import exported_models
from vklab.graph import passes, shapes
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

# Those that only leave work out change no bit; of the others sums are rounded in another order.
EXACT = {"fold_constants", "drop_no_ops", "join_views", "common_subexpressions", "merge_pads",
         "drop_dead_nodes"}  # fmt: skip
TOLERANCE = 1e-6
MODELS = ["bert", "llama_script", "mobilenet_v3"]
SIZES = {"batch": 2, "sequence": 6, "past": 5, "total": 11}
every_pass = pytest.mark.parametrize("step", passes.PASSES, ids=lambda step: step.name)
every_graph = pytest.mark.parametrize("name", GRAPHS)


def check_infos(graph: Graph) -> None:
    """Compare what a graph knows of its values with what their operators say, node by node."""
    fresh = shapes.infer(dataclasses.replace(graph, infos={})).infos
    assert {n: str(graph.infos[n]) for n in fresh} == {n: str(i) for n, i in fresh.items()}
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)


@every_pass
@every_graph
def test_a_pass_keeps_results_and_has_nothing_to_do_the_second_time(step, name):
    model = GRAPHS[name]()
    graph = pass_graphs.shaped(model)
    changed = passes.apply(step, graph)
    assert changed is not graph or step(graph) is graph
    assert step(changed) is changed
    assert changed.outputs == graph.outputs and changed.inputs == graph.inputs
    check_infos(changed)
    if changed is not graph:
        expected, got = (pass_graphs.evaluate(g, model[1]) for g in (graph, changed))
        tolerance = 0.0 if step.name in EXACT else TOLERANCE
        for key, truth in expected.items():
            scale = np.abs(truth).max(initial=0)
            np.testing.assert_allclose(got[key], truth, rtol=0, atol=tolerance * scale)
            assert tolerance or pass_graphs.same_bits(got[key], truth)


@every_graph
def test_all_passes_and_all_but_one_keep_results(name, monkeypatch):
    model = GRAPHS[name]()
    graph = pass_graphs.shaped(model)
    expected = pass_graphs.evaluate(graph, model[1])
    seen = set()
    for disabled in ("", *(step.name for step in passes.PASSES)):
        monkeypatch.setenv("VKLAB_DISABLE_PASSES", disabled)
        changed = passes.run(graph)
        assert passes.run(changed) is changed, disabled
        if str(changed._repr_html_()) in seen:
            continue
        seen.add(str(changed._repr_html_()))
        for key, truth in pass_graphs.evaluate(changed, model[1]).items():
            scale = np.abs(expected[key]).max(initial=0)
            np.testing.assert_allclose(truth, expected[key], rtol=0, atol=TOLERANCE * scale)
    monkeypatch.setenv("VKLAB_DISABLE_PASSES", "all")
    assert passes.run(graph) is graph


@pytest.mark.parametrize("name", MODELS)
def test_passes_are_idempotent_on_exported_models(name):
    proto = exported_models.load(name)
    graph = pass_graphs.shaped((proto, exported_models.inputs_of(proto, SIZES)))
    for step in passes.PASSES:
        once = passes.apply(step, graph)
        assert once is not graph or step(graph) is graph, step.name
        assert step(once) is once, step.name
    whole = passes.run(graph)
    assert passes.run(whole) is whole and whole.outputs == graph.outputs
    assert len(whole.nodes) < len(graph.nodes) or name == "mobilenet_v3"
    check_infos(whole)


@every_graph
def test_a_pass_for_gpus_changes_only_graphs_with_its_operators(name):
    graph = pass_graphs.shaped(GRAPHS[name]())
    for step in passes.LAYOUT_PASSES:
        assert passes.apply(step, graph, 4) is not graph or step(graph, 4) is graph, step.name


def test_a_traversal_yields_the_graph_after_every_pass():
    graph = pass_graphs.shaped(GRAPHS["no-ops"]())
    found = list(passes.traverse(graph))
    assert [name for name, _ in found[: len(passes.PASSES)]] == [
        step.name for step in passes.PASSES
    ]
    counts = [len(changed.nodes) for _, changed in found]
    assert counts[0] == len(graph.nodes) and counts[-1] == 1
    assert found[1][0] == "drop_no_ops" and counts[1] < counts[0]
    assert counts == sorted(counts, reverse=True)


def chain(length: int) -> Graph:
    """Return Transposes, Reshapes, Identities, channel factors and equal nodes, many of each."""
    kinds = [
        ("Transpose", (), {"perm": (0, 2, 1, 3)}),
        ("Add", ("c",), {}),
        ("Relu", (), {}),
        ("Reshape", ("shape",), {}),
        ("Identity", (), {}),
        ("Mul", ("c",), {}),
    ]
    nodes = []
    for number in range(length):
        op_type, more, attributes = kinds[number % len(kinds)]
        before = f"v{number - 1}" if number else "x"
        nodes.append(Node(f"n{number}", op_type, (before, *more), (f"v{number}",), attributes))
    constants = {
        name: TensorInfo(name, str(array.dtype), array.shape, array)
        for name, array in {
            "c": np.ones((1, 1), np.float32) * 2,
            "shape": np.int64([2, 3, 3, 4]),
        }.items()
    }
    x = TensorInfo("x", "float32", (2, 3, 3, 4))
    return shapes.infer(Graph("chain", 17, tuple(nodes), (x,), (f"v{length - 1}",), constants))


def seconds(step, graph: Graph) -> float:
    started = time.process_time()
    step(graph)
    return time.process_time() - started


@pytest.mark.slow
@every_pass
def test_a_pass_over_five_thousand_nodes_takes_less_than_half_a_second(step):
    graph = chain(5_000)
    step(chain(60))
    assert min(seconds(step, graph) for _ in range(2)) < 0.5
