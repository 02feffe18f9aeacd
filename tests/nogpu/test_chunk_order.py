"""Chunks of a whole plan wait for those that they read from, and for users of the same memory."""

from __future__ import annotations

import pytest
from onnx import helper

from support.checks import plan_checks
from support.checks.extension_checks import extension_problems
from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.graph import onnx_import
from vklab.plan import plan as plans
from vklab.plan.options import Facts, Options, PlacementOptions
from vklab.plan.plan import Plan
from vklab.runtime import host
from vklab.types import TensorInfo

SIZE = 300


def network(beside: bool):
    """Return products before and behind nodes that the host keeps.

    Args:
        beside: the second product reads nothing that the first one makes.
    """
    c = "z" if beside else "a"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "a"),
        helper.make_node("MatMul", ["z", "w"], ["b"], "b"),
        helper.make_node("Softplus", [c], ["c"], "c"),
        helper.make_node("MatMul", ["c", "w"], ["d"], "d"),
        helper.make_node("Softplus", ["d"], ["e"], "e"),
        helper.make_node("MatMul", ["e", "b"], ["y"], "y"),
    ]
    shape = (SIZE, SIZE)
    return model(nodes, [value("x", shape), value("z", shape)], ["y"], {"w": random_array(shape)})


def planned(devices: int = 1, beside: bool = False, **pins: int) -> Plan:
    """Return the whole plan of it, as a session makes it run by run."""
    graph = onnx_import.load_graph(network(beside))
    infos = [fake_device(index=n, name=f"GPU {n}") for n in range(devices)]
    facts = Facts(evaluate=host.evaluate)
    with settings.settings(HOST="Softplus"):
        options = Options(placement=PlacementOptions(pins=pins))
        plan = plans.make_plan(graph, {i.name: i for i in graph.inputs}, infos, options, facts)
        while plan.rest is not None:
            live = {n: TensorInfo(n, "float32", (SIZE, SIZE)) for n in plan.live}
            plan = plans.extend(plan, live, facts)
    return plan


def test_chunks_wait_for_what_they_read_and_for_the_device():
    plan = planned()
    assert [chunk.kind for chunk in plan.chunks] == ["vulkan", "host", "vulkan", "host", "vulkan"]
    assert [chunk.predecessors for chunk in plan.chunks] == [(), (0,), (0, 1), (2,), (0, 2, 3)]
    split = planned(2, a=0, b=1)
    assert [chunk.place for chunk in split.chunks][:2] == [0, 1]
    assert not extension_problems(Plan(split.graph, split.devices), split)


def nothing(chunks, chunk):
    return ()


def later(chunks, chunk):
    return (9,) if chunks else ()


def unshared(chunks, chunk):
    """Chunks wait for values alone, and not for who uses the memory of a device before."""
    read = {info.name for info in chunk.graph.inputs}
    return tuple(each.number for each in chunks if read & {*each.graph.outputs})


@pytest.mark.parametrize(("mutant", "message"), [
    (nothing, "reads 'a' without waiting for chunk 0"), (later, "waits for a later chunk"),
    (unshared, r"does not wait for chunks \[0\]"),
])  # fmt: skip
def test_an_order_that_is_forgotten_is_found(mutant, message, monkeypatch):
    monkeypatch.setattr(plans, "_dependencies", mutant)
    with pytest.raises(AssertionError, match=message):
        planned(beside=mutant is unshared)
    plan_checks.problems.clear()


def test_what_an_extension_adds_must_fit_what_was_there():
    plan = planned()
    empty = Plan(plan.graph, plan.devices)
    assert not extension_problems(empty, plan)
    assert "has not grown" in extension_problems(plan, plan)[0]
    lost = Plan(plan.graph, plan.devices, chunks=plan.chunks[1:])
    assert "is at place 0" in extension_problems(empty, lost)[0]
