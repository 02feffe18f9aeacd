"""Recorded graphs: shapes that hold together, changed by seed, and planned by the runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import vklab
from support.course.figures import svg_of
from vklab.graph import shapes
from vklab.plan import memory
from vklab.plan.plan import make_plan
from vklab_course.data import data
from vklab_labs.shared import recorded_graphs, swapped
from vklab_labs.shared.networks import draw_network
from vklab_labs.shared.recorded_graphs import NAMES, recorded

# Multiply-adds of one image of 224 x 224, as torchvision's tables give them; two flops each.
GIGAFLOPS = {"resnet50": 8.18, "inception_v1": 3.00, "shufflenet_v2": 0.29}


@pytest.mark.parametrize("name", NAMES)
def test_recorded_shapes_are_those_of_the_runtime(name):
    onnx.checker.check_model(onnx.load(data(f"graphs/{name}.onnx")))
    graph = recorded_graphs.runtime_graph(name)
    shaped = shapes.infer(graph)
    known = recorded(name)
    for node in known.nodes:
        for value in node.outputs:
            if value in shaped.infos:  # an expanded node has other values inside
                assert shaped.infos[value].shape == known.shapes[value], value
    products = sum(n.flops for n in known.nodes if n.op_type in recorded_graphs.PRODUCTS)
    if name in GIGAFLOPS:
        assert products / 1e9 == pytest.approx(GIGAFLOPS[name], rel=0.02)


def test_another_batch_and_size():
    small, large = recorded("resnet50"), recorded("resnet50", 3, 448)
    value = small.nodes[0].outputs[0]
    assert small.shapes[value] == (1, 64, 112, 112) and large.shapes[value] == (3, 64, 224, 224)
    assert large.size_bytes(value) == 12 * small.size_bytes(value)
    with pytest.raises(ValueError, match="size 100"):
        recorded("unet", size=100)
    with pytest.raises(ValueError, match="choose from resnet50"):
        recorded("resnet18")


@pytest.mark.parametrize("name", NAMES)
def test_changes_by_seed_keep_the_graph(name):
    graph = recorded(name)
    one, two = (graph.shuffled(np.random.default_rng(seed)) for seed in (1, 1))
    assert one == two and sorted(n.name for n in one.nodes) == sorted(n.name for n in graph.nodes)
    seen: set[str] = set()
    for node in one.nodes:
        assert all(value in seen for value in node.inputs if value in graph.makers())
        seen.update(node.outputs)
    renamed = one.renamed(np.random.default_rng(2))
    assert not {n.name for n in renamed.nodes} & {n.name for n in graph.nodes}
    assert sorted(map(renamed.size_bytes, renamed.shapes)) == sorted(
        map(graph.size_bytes, graph.shapes)
    )
    part = renamed.part(np.random.default_rng(3), 12)
    made = part.makers()
    assert all(
        v in made or v in part.inputs or v in part.weights
        for node in part.nodes
        for v in node.inputs
    )
    assert part.outputs and set(part.outputs) <= set(made)


def test_irregular_wirings_read_every_node_but_the_last():
    for seed in range(20):
        wiring = recorded_graphs.irregular(np.random.default_rng(seed), 20, reach=5)
        assert all(other < number for number, reads in enumerate(wiring) for other in reads)
        assert {other for reads in wiring for other in reads} >= set(range(15))


def test_the_runtime_plans_a_recorded_graph():
    graph = recorded_graphs.runtime_graph("unet")
    plan = make_plan(graph, {i.name: i for i in graph.inputs}, vklab.devices()[:1])
    assert len(plan.chunks) == 1 and plan.memory.weights_bytes > 100 << 20


def by_first_step(lifetimes, aliasing=True):
    return memory._sweep(sorted(lifetimes, key=lambda life: life.first))


def all_at_zero(lifetimes, aliasing=True):
    return {life.name: 0 for life in lifetimes}, max(life.length_bytes for life in lifetimes)


def never_ends(lifetimes, aliasing=True):
    while True:
        pass


def test_a_swapped_function_runs_in_a_process_of_its_own():
    seam = "vklab.plan.memory.assign_offsets"
    rows, why = swapped.run_swapped(seam, by_first_step, models=["digits_cnn.onnx"])
    assert [row.model for row in rows] == ["digits_cnn.onnx", "resnet50"] and not why
    assert rows[0].same and rows[1].same is None
    assert rows[1].mine["arena_bytes"] > rows[1].own["arena_bytes"]
    assert "same outputs: True" in str(rows[0]) and "planned, not run" in str(rows[1])
    rows, why = swapped.run_swapped(seam, all_at_zero, models=[])
    assert not rows and "share bytes" in why
    rows, why = swapped.run_swapped(seam, never_ends, models=[], seconds=3)
    assert not rows and "did not end within 3 s" in why


def test_a_drawn_network_names_its_nodes():
    nodes = [("a", "Conv", ["x"], ["y"]), ("b", "Relu", ["y"], ["z"]), ("c", "Add", "yz", ["w"])]
    drawn = draw_network(
        nodes,
        alt="three nodes",
        caption="Three.",
        colours={"a": "blue"},
        legend={"blue": "a product"},
        notes={"c": ["(1, 3)"]},
    )
    for words in ("Conv", "b", "(1, 3)", "a product", "c: w = Add(y, z)"):
        assert f">{words}<" in svg_of(drawn), words
