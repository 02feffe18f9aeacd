"""Cutting: every node once, every edge respected, no device waiting for work that it does not need.

Random graphs on random devices are cut, and run chunk by chunk in any valid order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from support.checks.spread_checks import chunk_problems
from support.runs import tiers
from vklab.errors import PlanError
from vklab.graph.graph import Graph, Node
from vklab.plan.chunk import Chunk
from vklab.plan.place import cutting
from vklab.types import TensorInfo

SIZE = 3


def mix(*values: np.ndarray) -> np.ndarray:
    """Compute the toy operator: what it returns depends on each input and on their order."""
    total = np.arange(SIZE, dtype=np.uint64)
    for value in values:
        total = total * np.uint64(6364136223846793005) + value
    return total


def toy(reads: Sequence[Sequence[str]], inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    """Build a graph of toy nodes n0, n1 ... that write v0, v1 ...; "c" is a constant."""
    nodes = tuple(Node(f"n{k}", "Mix", tuple(r), (f"v{k}",)) for k, r in enumerate(reads))
    names = [*inputs, *(f"v{k}" for k in range(len(reads)))]
    infos = {name: TensorInfo(name, "uint64", (SIZE,)) for name in names}
    constant = TensorInfo("c", "uint64", (SIZE,), np.full(SIZE, 7, np.uint64))
    return Graph(
        "toy",
        17,
        nodes,
        tuple(infos[name] for name in inputs),
        tuple(outputs),
        {"c": constant},
        {**infos, "c": constant},
    )


def evaluate(graph: Graph, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run toy nodes one by one, with nothing but what the graph says it reads."""
    values = {info.name: given[info.name] for info in graph.inputs}
    for name, info in graph.initializers.items():
        assert info.constant is not None
        values[name] = info.constant
    for node in graph.nodes:
        values[node.outputs[0]] = mix(*(values[name] for name in node.reads))
    return {name: values[name] for name in graph.outputs}


def run_chunks(
    cut: Sequence[Chunk], given: Mapping[str, np.ndarray], order: random.Random
) -> dict[str, np.ndarray]:
    """Run chunks in a random order that their predecessors allow."""
    values = dict(given)
    waiting = {chunk.number: set(chunk.predecessors) for chunk in cut}
    while waiting:
        ready = [number for number, left in waiting.items() if not left]
        number = order.choice(ready)
        del waiting[number]
        values.update(evaluate(cut[number].graph, values))
        for before in waiting.values():
            before.discard(number)
    return values


@st.composite
def placed_graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, int], int]:
    """Draw a graph of up to 200 nodes, a device for each, and a seed."""
    seed = draw(st.integers(0, 2**32))
    rng = random.Random(seed)
    count = draw(st.integers(1, 200))
    devices = draw(st.integers(1, 4))
    reach = draw(st.sampled_from([1, 3, 20, 200]))  # chains, or what reads from far away
    stay = draw(st.sampled_from([0.0, 0.7, 0.95]))  # how often a node stays where its maker is
    reads = []
    for k in range(count):
        earlier = ["x", "y", "c", *(f"v{j}" for j in range(max(0, k - reach), k))]
        near = rng.choice(earlier[3:] or earlier)
        reads.append([near, *rng.choices(earlier, k=rng.randint(0, 2))])
    outputs = sorted({f"v{count - 1}", *(f"v{rng.randrange(count)}" for _ in range(2))})
    nodes: dict[str, int] = {}
    for k in range(count):
        device = rng.randrange(devices)
        nodes[f"n{k}"] = nodes[f"n{k - 1}"] if k and rng.random() < stay else device
    return toy(reads, ("x", "y"), outputs), nodes, seed


@given(placed_graphs())
@hypothesis_settings(max_examples=tiers.examples(120), deadline=None)
def test_chunks_in_any_order_compute_what_the_graph_does(case):
    graph, devices, seed = case
    rng = random.Random(seed)
    early = frozenset(node.outputs[0] for node in graph.nodes if rng.random() < 0.3)
    values = {"x": np.full(SIZE, 11, np.uint64), "y": np.full(SIZE, 13, np.uint64)}
    expected = evaluate(graph, values)
    for ends in (frozenset(), early):
        cut = cutting.cut(graph, devices, ends)
        assert not chunk_problems(graph, cut)
        for chunk in cut:
            assert {devices[node.name] for node in chunk.graph.nodes} == {chunk.device}
            assert not any(ends.intersection(n.outputs) for n in chunk.graph.nodes[:-1])
        found = run_chunks(cut, values, rng)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
        if len(set(devices.values())) == 1 and not ends:
            assert len(cut) == 1


def shown(cut: Sequence[Chunk]) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return device, nodes and predecessors of each chunk."""
    return [(c.device, " ".join(n.name for n in c.graph.nodes), c.predecessors) for c in cut]


def test_a_chain_is_cut_where_the_device_changes():
    graph = toy([["x"], ["v0"], ["v1"], ["v2"]], ("x",), ("v3",))
    cut = cutting.cut(graph, {"n0": 0, "n1": 0, "n2": 1, "n3": 0})
    assert shown(cut) == [(0, "n0 n1", ()), (1, "n2", (0,)), (0, "n3", (1,))]
    moved = [(t.value, t.source, t.target, t.size_bytes) for t in cutting.transfers(cut)]
    assert moved == [("x", None, 0, 24), ("v1", 0, 1, 24), ("v2", 1, 2, 24)]
    assert str(cut[2]) == "chunk 2: 1 nodes on device 0 after 1"


def test_a_branch_for_another_device_does_not_wait_for_the_one_that_stays():
    # n0 feeds a long branch n1 n2 here and n3 there; n4 joins both.
    graph = toy([["x"], ["v0"], ["v1"], ["v0"], ["v2", "v3"]], ("x",), ("v4",))
    cut = cutting.cut(graph, {"n0": 0, "n1": 0, "n2": 0, "n3": 1, "n4": 0})
    assert shown(cut) == [
        (0, "n0", ()),
        (0, "n1 n2", (0,)),
        (1, "n3", (0,)),
        (0, "n4", (1, 2)),
    ]


def test_a_value_that_leaves_early_ends_a_chunk():
    # n3 is another device's: it needs what n0 makes at once, and n2 at the end.
    graph = toy([["x"], ["v0"], ["v1"], ["v0", "v2"]], ("x",), ("v3",))
    devices = {"n0": 0, "n1": 0, "n2": 0, "n3": 1}
    assert shown(cutting.cut(graph, devices)) == [(0, "n0 n1 n2", ()), (1, "n3", (0,))]
    assert shown(cutting.cut(graph, devices, frozenset({"v0", "v2"}))) == [
        (0, "n0", ()),
        (0, "n1 n2", (0,)),
        (1, "n3", (0, 1)),
    ]


def test_a_node_that_could_close_a_cycle_gets_a_chunk_of_its_own():
    # As one run of device 0, n0 and n2 would wait for n1, which waits for n0.
    graph = toy([["x"], ["v0"], ["v0", "v1"]], ("x",), ("v2",))
    cut = cutting.cut(graph, {"n0": 0, "n1": 1, "n2": 0})
    assert shown(cut) == [(0, "n0", ()), (1, "n1", (0,)), (0, "n2", (0, 1))]


def test_independent_branches_on_one_device_stay_together_only_if_nobody_waits_for_one_of_them():
    graph = toy([["x"], ["y"], ["v0"], ["v1"]], ("x", "y"), ("v2", "v3"))
    assert shown(cutting.cut(graph, dict.fromkeys(["n0", "n1", "n2", "n3"], 0))) == [
        (0, "n0 n1 n2 n3", ())
    ]
    apart = cutting.cut(graph, {"n0": 0, "n1": 0, "n2": 1, "n3": 2})
    assert shown(apart) == [(0, "n0", ()), (0, "n1", ()), (1, "n2", (0,)), (2, "n3", (1,))]


def test_values_known_beforehand_are_constants_of_the_chunk_that_reads_them():
    graph = toy([["c"], ["v0", "x"]], ("x",), ("v1",))
    known = replace(graph.infos["v0"], constant=np.arange(SIZE, dtype=np.uint64))
    graph = replace(graph, infos={**graph.infos, "v0": known})
    cut = cutting.cut(graph, {"n0": 0, "n1": 1})
    assert not chunk_problems(graph, cut)
    assert [(s.device, s.predecessors) for s in cut] == [(0, ()), (1, ())]
    assert cut[1].graph.initializers["v0"] is known


def test_a_node_without_a_device_is_named():
    with pytest.raises(PlanError, match="node 'n1' .Mix. has no device"):
        cutting.cut(toy([["x"], ["v0"]], ("x",), ("v1",)), {"n0": 0})


def says(message: str, graph: Graph, cut: Sequence[Chunk]) -> bool:
    """Tell whether the checker finds something wrong with chunks."""
    return any(message in line for line in chunk_problems(graph, cut))


def broken(cut: tuple[Chunk, ...], place: int, /, **changes) -> tuple[Chunk, ...]:
    """Return chunks with one of them changed; names of fields of the graph change that."""
    chunk = cut[place]
    inner = {key: changes.pop(key) for key in list(changes) if hasattr(chunk.graph, key)}
    chunk = replace(chunk, graph=replace(chunk.graph, **inner), **changes)
    return (*cut[:place], chunk, *cut[place + 1 :])


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (2, {"predecessors": (0,)}, "should wait for"),
        (0, {"predecessors": (2,)}, "waits for itself"),
        (0, {"predecessors": (1,)}, "waits for a later chunk"),
        (1, {"nodes": ()}, "miss nodes"),
        (1, {"outputs": ()}, "does not leave"),
        (2, {"outputs": ()}, "no chunk leaves the output"),
        (1, {"number": 2}, "is at place"),
        (2, {"inputs": ()}, "runs before what it reads"),
    ],
)
def test_the_checker_sees_each_kind_of_damage(number, changes, message):
    graph = toy([["x"], ["v0"], ["v0", "v1"]], ("x",), ("v2",))
    cut = cutting.cut(graph, {"n0": 0, "n1": 1, "n2": 0})
    assert not chunk_problems(graph, cut)
    assert says(message, graph, broken(cut, number, **changes))


def test_the_checker_sees_a_node_done_twice_and_one_done_too_early():
    graph = toy([["x"], ["v0"]], ("x",), ("v1",))
    (whole,) = cutting.cut(graph, {"n0": 0, "n1": 0})
    twice = replace(whole, graph=replace(graph, nodes=(*graph.nodes, graph.nodes[0])))
    assert says("in two chunks", graph, (twice,))
    early = replace(whole, graph=replace(graph, nodes=graph.nodes[::-1]))
    assert says("runs before what it reads", graph, (early,))
