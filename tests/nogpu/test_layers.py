"""Independent branches share layers between barriers, and take no more memory for it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from support.fakes.fake_device import DISCRETE, UNIFIED, fake_device
from support.graphs.small_models import model, value
from support.models.planned import plan_of
from vklab import settings
from vklab.plan import arenas
from vklab.plan.plan import Plan
from vklab.plan.tuning import in_place, layers

APART = {"DISABLE_FUSION": True, "DISABLE_PASSES": "all"}


def towers(count: int, height: int, size: int = 64):
    """Return chains of Relu side by side, one after the other in the file, and their sum."""
    nodes = [
        helper.make_node("Relu", [f"t{i}_{j}" if j else "x"], [f"t{i}_{j + 1}"])
        for i in range(count)
        for j in range(height)
    ]
    nodes.append(helper.make_node("Sum", [f"t{i}_{height}" for i in range(count)], ["y"]))
    return model(nodes, [value("x", (size,))], ["y"])


def both(proto, info=None, **switches) -> tuple[Plan, Plan]:
    """Return plans without reordering and with it."""
    with settings.settings(**APART, **switches):
        with settings.settings(DISABLE_REORDER=True):
            plain = plan_of(proto, info)
        return plain, plan_of(proto, info)


def barriers(plan: Plan) -> int:
    return plan.summary()["barriers"]


def check_order(plan: Plan) -> None:
    """Whatever is read has been written before, by whoever writes it."""
    made = {info.name for info in plan.graph.inputs} | set(plan.chunks[0].constants)
    for dispatch in plan.dispatches:
        assert {info.name for _, info in dispatch.reads} <= made, dispatch
        made.update(info.name for _, info in dispatch.writes)


def test_towers_take_as_many_barriers_as_one_of_them():
    plain, layered = both(towers(3, 5), DISABLE_ALIASING=True)
    # three Relus a layer, then two sums of two; a barrier before each layer, one for the host
    assert barriers(layered) == 7 < barriers(plain)
    assert [d.writes[0][1].name for d in layered.dispatches[:4]] == ["t0_1", "t1_1", "t2_1", "t0_2"]
    check_order(layered)


def test_what_would_take_more_memory_stays_behind():
    """Each tower grows and shrinks: one at a time fits where all of them do not."""
    nodes, tops = [], []
    for i in range(4):
        nodes += [
            helper.make_node("Expand", ["x", "wide"], [f"wide{i}"]),
            helper.make_node("Relu", [f"wide{i}"], [f"relu{i}"]),
            helper.make_node("ReduceMax", [f"relu{i}"], [f"top{i}"], keepdims=1),
        ]
        tops.append(f"top{i}")
    nodes.append(helper.make_node("Concat", tops, ["y"], axis=0))
    wide = {"wide": np.int64([1024, 64])}
    plain, layered = both(model(nodes, [value("x", (1, 64))], ["y"], wide))
    assert layered.memory.arena_bytes <= plain.memory.arena_bytes
    check_order(layered)
    plain, free = both(model(nodes, [value("x", (1, 64))], ["y"], wide), DISABLE_ALIASING=True)
    assert barriers(free) < barriers(layered) <= barriers(plain)


def test_the_switch_and_a_chain_leave_the_order_alone():
    plain, layered = both(towers(1, 20))
    assert plain.rows() == layered.rows() and plain.memory == layered.memory
    plain, layered = both(towers(4, 3))
    names = [n for n in plain.chunks[0].nodes if n.startswith("Relu")]
    assert names == sorted(names, key=lambda n: [m.name for m in plain.graph.nodes].index(n))
    assert Counter(map(str, plain.dispatches)) == Counter(map(str, layered.dispatches))
    assert plain.rows() != layered.rows()


@st.composite
def graphs(draw: st.DrawFn):
    """Draw a graph of element-wise nodes, each of one or two earlier values of one length."""
    count, size = draw(st.integers(1, 25)), draw(st.sampled_from([1, 64, 70]))
    nodes = []
    names = ["x"]
    for i in range(count):
        reads = draw(st.lists(st.sampled_from(names[-6:]), min_size=1, max_size=2))
        nodes.append(helper.make_node("Relu" if len(reads) == 1 else "Mul", reads, [f"v{i}"]))
        names.append(f"v{i}")
    ends = [n for n in names if not any(n in node.input for node in nodes)]
    return model(nodes, [value("x", (size,))], ends)


@given(graphs(), st.booleans(), st.sampled_from([UNIFIED, DISCRETE]))
def test_any_graph_is_done_once_in_an_order_that_works(proto, staged, types):
    plain, layered = both(proto, fake_device(memory_types=types), DISABLE_DIRECT_IO=staged)
    assert Counter(map(str, plain.dispatches)) == Counter(map(str, layered.dispatches))
    assert barriers(layered) <= barriers(plain)
    assert layered.memory.arena_bytes <= plain.memory.arena_bytes
    assert layered.memory.arena_bytes >= layered.memory.lower_bound_bytes
    check_order(layered)


@pytest.mark.full
@given(graphs())
def test_room_is_counted_as_memory_is_planned(proto):
    """What a layer is let take is what lifetimes say: none is refused in the end for its bound."""
    found = []
    grouped = layers.grouped

    def listen(lowered, arranged, most):
        made = grouped(lowered, arranged, most)
        if made is not lowered:
            found.append((made, arranged))
        return made

    with pytest.MonkeyPatch.context() as patch, settings.settings(**APART):
        patch.setattr(layers, "grouped", listen)
        plan = plan_of(proto)
    for made, arranged in found:
        graph = plan.chunks[0].graph
        again = arenas.arrange(graph, made, fake_device(), (), in_place.owners)
        assert again.memory.lower_bound_bytes <= arranged.memory.arena_bytes


def test_pieces_of_one_value_share_a_layer():
    """What is cut to fit a binding writes parts of one root, which do not meet."""
    info = fake_device({"maxStorageBufferRange": 4096})
    plain, layered = both(towers(2, 3, size=4000), info)
    assert len(plain.dispatches) > 7 * 3
    assert barriers(layered) < barriers(plain)
    assert layered.memory.arena_bytes <= plain.memory.arena_bytes


def test_what_is_put_side_by_side_needs_no_barrier_in_between():
    """Each dispatch writes a part of one value; parts that do not meet are no hazard."""
    kinds = ("Relu", "Neg", "Abs", "Exp")
    nodes = [helper.make_node(kind, ["x"], [kind]) for kind in kinds]
    nodes.append(helper.make_node("Concat", kinds, ["y"], axis=1))
    plain, layered = both(model(nodes, [value("x", (3, 64))], ["y"]))
    assert [d.writes[0][1].name for d in layered.dispatches[-4:]] == ["y"] * 4
    assert barriers(layered) == barriers(plain) == 5  # rows interleave: parts meet
    proto = model(
        [*nodes[:-1], helper.make_node("Concat", kinds, ["y"], axis=0)],
        [value("x", (3, 64))],
        ["y"],
    )
    assert barriers(both(proto)[1]) == 2  # all four, all four, and the host
