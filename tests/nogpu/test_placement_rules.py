"""What decides before time does: pins, capability, memory; and what is said of bad ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.checks.spread_checks import chunk_problems
from support.fakes.fake_device import fake_device
from support.fakes.placed_graphs import EVEN, machines, network, weight
from vklab import settings
from vklab.errors import PlanError
from vklab.graph import shapes
from vklab.graph.graph import Graph, Node
from vklab.plan.place import costs, cutting, placement
from vklab.plan.place.costs import Workload
from vklab.types import MemoryHeap, TensorInfo

# ------------------------------------------------------------------------ pins and capability


def test_pins_hold_and_say_so():
    graph = network(
        [("in/a", "Relu", ("x",)), ("in/b", "Tanh", ("in/a",)), ("c", "Relu", ("in/b",))]
    )
    placed = placement.place(graph, machines(2), pins={"in": 1, "c": 0})
    assert list(placed.devices.values()) == [1, 1, 0]
    assert placed.reasons["in/a"] == "pinned by place={'in': 1}" and placed.single_ns is None
    by_type = placement.place(graph, machines(2), pins={"Tanh": 1, "*": 0})
    assert list(by_type.devices.values()) == [0, 1, 0]


def test_a_device_without_int64_is_not_given_int64_arithmetic():
    graph = network([("sum", "Add", ("x", "x")), ("next", "Neg", ("sum",))], dtype="int64")
    can = fake_device(index=1, name="Wide", features=frozenset({"shaderInt64"}))
    small = fake_device(index=0, name="Small")
    placed = placement.place(graph, [small, can])
    assert set(placed.devices.values()) == {1}
    assert "Small lacks shaderInt64" in placed.reasons["sum"]
    with pytest.raises(PlanError, match=r"place=.*Small lacks shaderInt64"):
        placement.place(graph, [small, can], pins={"sum": 0})
    with pytest.raises(PlanError, match=r"no device can run node 'sum': device 0 \(Small\): .*64"):
        placement.place(graph, [small])


def test_a_visit_to_the_only_device_that_can_comes_back_where_that_is_cheaper():
    layers = [
        ("a", "MatMul", ("x", "w0")),
        ("big", "Cast", ("a",)),
        ("n", "Neg", ("big",)),
        ("back", "Cast", ("n",)),
    ]
    nodes = [
        Node(out, op, reads, (out,), {"to": 7 if out == "big" else 1} if op == "Cast" else {})
        for out, op, reads in layers
    ]
    tail = [
        Node(f"t{k}", "MatMul", (f"t{k - 1}" if k else "back", "w0"), (f"t{k}",)) for k in range(4)
    ]
    x = TensorInfo("x", "float32", (512, 512))
    graph = shapes.infer(
        Graph("visit", 17, (*nodes, *tail), (x,), ("t3",), {"w0": weight("w0", 512, 512)})
    )
    slow = fake_device(index=1, name="Wide", features=frozenset({"shaderInt64"}))
    slow_costs = replace(EVEN, flops_per_ns=1, thin_flops_per_ns=1)
    placed = placement.place(graph, [fake_device(index=0), slow], costs={0: EVEN, 1: slow_costs})
    assert placed.devices["n"] == 1
    assert {placed.devices[name] for name in ("a", "t0", "t3")} == {0}
    cut = cutting.cut(graph, placed.devices)
    assert not chunk_problems(graph, cut, placed.devices)


# ------------------------------------------------------------------------------------- errors


def test_bad_pins_devices_caps_and_policies_are_named():
    graph = network([("a", "Relu", ("x",)), ("b", "Relu", ("a",))])
    two = machines(2)
    with pytest.raises(PlanError, match=r"'conv\*': 1.*no node has such a name.*nodes are a, b$"):
        placement.place(graph, two, pins={"conv*": 1})
    assert placement.place(graph, two, pins={"conv*": 1}, is_part=True).devices
    with pytest.raises(PlanError, match=r"no device 2; choose from 0: GPU 0, 1: GPU 1"):
        placement.place(graph, two, pins={"a": 2})
    with pytest.raises(PlanError, match=r"device 1 \(GPU 1\) is listed 2 times"):
        placement.place(graph, [*two, two[1]])
    with pytest.raises(PlanError, match=r"memory cap for unknown device 5; choose from 0 to 1"):
        placement.place(graph, two, caps={5: 1})
    for size in ("1G", -1, 0.5):
        with pytest.raises(PlanError, match=rf"cap of {size!r} for device 1; give a number of"):
            placement.place(graph, two, caps={1: size})
    with pytest.raises(PlanError, match=r"placement policy 'best'; choose from cost, greedy"):
        placement.place(graph, two, policy="best")
    with pytest.raises(PlanError, match=r"no device to place"):
        placement.place(graph, [])


@pytest.mark.parametrize("policy", placement.POLICIES)
def test_what_fits_nowhere_says_what_it_needs_and_what_there_is(policy):
    graph = network([(f"n{k}", "MatMul", (f"n{k - 1}" if k else "x", f"w{k}")) for k in range(4)])
    size = 64 * 64 * 4
    caps = {0: 2 * size, 1: 2 * size}
    said = (
        rf"node 'n0' \(MatMul\) fits nowhere: device 0 \(GPU 0\) has {2 * size} of "
        rf"{3 * size} bytes; device 1"
    )
    with pytest.raises(PlanError, match=said):
        placement.place(graph, machines(2), caps=caps, policy=policy)
    caps = {0: 3 * size, 1: 3 * size}
    need = rf"device 0 \(GPU 0\) needs {8 * size} bytes \({4 * size} of weights, .*has {3 * size}"
    said = {
        "cost": f"found no placement that fits: {need}; device 1",
        "greedy": "nowhere after the node",
    }
    with pytest.raises(PlanError, match=said[policy]):
        placement.place(graph, machines(2), caps=caps, policy=policy)


def test_a_budget_is_what_the_driver_says_is_free():
    heaps = (MemoryHeap(8 << 30, True, 1000, 100), MemoryHeap(8 << 30, False, 9000, 0))
    assert costs.budget_bytes(fake_device(heaps=heaps)) == 950 - 100
    with settings.settings(MEMORY_LIMIT=0.5):
        assert costs.budget_bytes(fake_device(heaps=heaps)) == 500 - 100


def test_a_narrow_type_that_a_device_lacks_takes_its_real_room():
    graph = network([("a", "Relu", ("x",))], dtype="float16")
    load = Workload(graph, [fake_device()], {})
    assert load.stored_bytes("x", 0) == 2 * graph.infos["x"].size_bytes
