"""Graphs of very many nodes: from import to barriers, time grows with their number, not faster."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from support.graphs.small_models import model, value
from support.models.planned import next_chunk, plan_graph
from vklab.graph import onnx_import, operator_cache, passes, shapes
from vklab.plan import barriers, memory
from vklab.plan.barriers import Access
from vklab.plan.memory import Lifetime, Slot
from vklab.plan.partition import Needed
from vklab.plan.plan import Plan

# Four times the nodes may take so many times as long: 4 with noise, where squares would take 16.
GROWTH = 8


def chain(count: int) -> onnx.ModelProto:
    """Return x + x + x ..., one after the other."""
    nodes = [
        helper.make_node("Add", [f"v{i}" if i else "x", "x"], [f"v{i + 1}"]) for i in range(count)
    ]
    return model(nodes, [value("x", (4,))], [f"v{count}"])


def fan(count: int) -> onnx.ModelProto:
    """Return as many outputs of one input as there are nodes."""
    nodes = [helper.make_node("Relu", ["x"], [f"v{i}"]) for i in range(count)]
    return model(nodes, [value("x", (4,))], [f"v{i}" for i in range(count)])


def long_lives(count: int) -> onnx.ModelProto:
    """Return values that are all made first and read afterwards, in the same order."""
    half = count // 2
    nodes = [helper.make_node("Relu", ["x"], [f"v{i}"]) for i in range(half)]
    nodes += [
        helper.make_node("Add", [f"v{i}", f"s{i}" if i else "x"], [f"s{i + 1}"])
        for i in range(half)
    ]
    return model(nodes, [value("x", (4,))], [f"s{half}"])


def weights(count: int) -> onnx.ModelProto:
    """Return a chain in which each node has an initializer of its own."""
    nodes = [
        helper.make_node("Add", [f"v{i}" if i else "x", f"c{i}"], [f"v{i + 1}"])
        for i in range(count)
    ]
    constants = {f"c{i}": np.ones(4, np.float32) for i in range(count)}
    return model(nodes, [value("x", (4,))], [f"v{count}"], constants)


def plan(proto: onnx.ModelProto) -> Plan:
    """Plan a model that runs whole on a device; equal nodes are analysed once, as in `extend`."""
    graph = onnx_import.load_graph(proto)
    shapes.require_operators(graph)
    given = {info.name: info for info in graph.inputs}
    with operator_cache.active():
        found = next_chunk(graph, given)
        assert not isinstance(found, Needed) and found[0].kind == "vulkan"
        return plan_graph(passes.run(found[0].graph))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()  # what others do meanwhile does not count
    work()
    return time.process_time() - start


KINDS = [chain, fan, long_lives, weights]


# A small size finds by default what grows by the square and is not small.
@pytest.mark.full
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_ten_thousand_nodes(kind, count):
    few, many = kind(count // 4), kind(count)
    plan(kind(100))
    once = seconds(lambda: plan(few))
    assert seconds(lambda: plan(many)) < GROWTH * once


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_hundred_thousand_nodes(kind):
    few, many = kind(25_000), kind(100_000)
    once = seconds(lambda: plan(few))
    assert seconds(lambda: plan(many)) < GROWTH * once


@pytest.mark.slow
def test_memory_of_twenty_thousand_nodes():
    peaks = []
    for count in (5_000, 20_000):  # tracemalloc makes planning four times as slow
        proto = chain(count)
        tracemalloc.start()
        plan(proto)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 6 * peaks[0] and peaks[1] < 400 << 20


@pytest.mark.slow
def test_placing_a_hundred_thousand_values_that_live_long():
    lives = [Lifetime(f"v{i}", 1000 + 8 * (i % 97), i, i + 5000) for i in range(100_000)]
    spent = seconds(lambda: memory.check_offsets(lives, *memory.assign_offsets(lives)))
    assert spent < 60  # by the square it would be hours


@pytest.mark.slow
def test_barriers_of_a_hundred_thousand_steps_that_do_not_meet():
    work = [Access("compute_shader", (), (Slot("a", 256 * i, 256),)) for i in range(100_000)]
    assert len(barriers.find_barriers(work)) == 1


def nested(depth: int) -> onnx.ModelProto:
    """Return an If in an If in an If ...; made in place, as copies have a limit of their own."""
    proto = model(
        [helper.make_node("If", ["c"], ["y"], name="if0")],
        [value("x", (2,)), value("c", (), 9)],
        ["y"],
    )
    node = proto.graph.node[0]
    for level in range(depth):
        leaf = None
        for branch in ("else_branch", "then_branch"):
            item = node.attribute.add(name=branch, type=onnx.AttributeProto.GRAPH)
            item.g.name = branch
            out = f"{branch}{level}"
            is_leaf = branch == "else_branch" or level == depth - 1
            leaf = item.g.node.add(
                op_type="Relu" if is_leaf else "If",
                name=f"{out}_node",
                input=["x" if is_leaf else "c"],
                output=[out],
            )
            item.g.output.add(name=out)
        assert leaf is not None
        node = leaf
    return proto


def test_a_hundred_bodies_inside_each_other():
    graph = onnx_import.load_graph(nested(100))
    shapes.require_operators(graph)
    given = {info.name: info for info in graph.inputs}
    found = next_chunk(graph, given)
    assert not isinstance(found, Needed) and found[0].kind == "control"
