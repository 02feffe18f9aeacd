"""Which values move past the host: decided by what devices say, with none of them there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import helper

from support.checks.spread_checks import as_cut
from support.fakes.fake_device import DISCRETE, LOCAL, UNIFIED, VISIBLE, memory_types
from support.fakes.fake_spread import placed
from support.graphs.small_models import model, value
from vklab import settings
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.place import transfer_paths
from vklab.plan.report import table

FLOAT, HALF = 1, 10
PINS = {"[acdy]": 0, "b": 1}
MANY = 1 << 20  # float32 elements that no kernel writes through a bus
REBAR = DISCRETE + memory_types(LOCAL | VISIBLE | 4)


def plan(types, other, elements=MANY, dtype=FLOAT, keep=(), features=frozenset(),
         pins=PINS):  # fmt: skip
    """Return the plan of five nodes; if nothing else is pinned, only `b` is the second device's."""
    steps = [
        ("Relu", "x", "a"),
        ("Exp", "a", "d"),
        ("Neg", "a", "b"),
        ("Abs", "b", "c"),
        ("Max", "d c", "y"),
    ]
    nodes = [helper.make_node(op, read.split(), [made], made) for op, read, made in steps]
    ends = [value(name, (elements,), dtype) for name in (*keep, "y")]
    proto = model(nodes, [value("x", (elements,), dtype)], ends)
    return placed(proto, types, other, features, pins)


def unseen(made):
    """Return the values that lie in arenas of their own, at both ends of their path, but for `d`.

    Chunks of one device leave it for each other: it is always among them.
    """
    left, found = (
        {
            name
            for each in made.chunks
            for name, slot in slots(each).items()
            if slot.arena.startswith(arena)
        }
        for slots, arena in (
            (lambda p: p.output_slots, "leaving"),
            (lambda p: p.input_slots, "arriving"),
        )
    )
    assert left == found and "d" in left
    return left - {"d"}


@pytest.mark.parametrize(("types", "other", "expected"), [
    (DISCRETE, DISCRETE, {"a", "b"}), (DISCRETE, REBAR, {"a", "b"}), (REBAR, REBAR, {"a", "b"}),
    (UNIFIED, DISCRETE, set()), (DISCRETE, UNIFIED, set()), (UNIFIED, UNIFIED, set()),
])  # fmt: skip
def test_values_move_past_the_host_where_both_devices_have_memory_of_their_own(
    types, other, expected
):
    made = plan(types, other)
    assert unseen(made) == expected
    whole = sum(p.memory.arenas.get(n, 0) for p in made.chunks for n in ("inputs", "outputs"))
    # Seen by the host: x and y; and else what crosses, at both of its ends.
    assert whole == 4 * MANY * (2 if expected else 7)
    copied = {copy.name for each in made.chunks for copy in each.copies}
    assert not copied & expected


def test_small_values_kept_ones_and_those_of_other_types_lie_where_the_host_sees_them():
    assert unseen(plan(DISCRETE, DISCRETE, elements=1000)) == set()
    assert unseen(plan(DISCRETE, DISCRETE, keep=("a",))) == {"b"}
    half = frozenset().union(*(element.needs for element in ELEMENTS.values()))
    assert unseen(plan(DISCRETE, DISCRETE, dtype=HALF)) == {"a", "b"}
    assert unseen(plan(DISCRETE, DISCRETE, dtype=HALF, features=half)) == set()


def test_switches_decide_against_it_and_for_it():
    with settings.settings(DISABLE_STAGING_RING=True):
        assert unseen(plan(DISCRETE, DISCRETE)) == set()
    with settings.settings(DISABLE_DIRECT_IO=True):
        assert unseen(plan(UNIFIED, UNIFIED, elements=1)) == {"a", "b"}


def test_a_large_value_that_crosses_ends_a_chunk_unless_switched_off():
    def chunks(elements, **switches):
        with settings.settings(**switches):
            made = plan(DISCRETE, DISCRETE, elements, pins={"y": 1, "[!y]": 0})
        return [" ".join(node.name for node in c.graph.nodes) for c in as_cut(made.chunks)]

    assert chunks(2 * MANY) == ["a d", "b c", "y"]
    whole = ["a d b c", "y"]
    assert chunks(MANY - 1) == whole and chunks(2 * MANY, DISABLE_EARLY_MOVES=True) == whole
    assert chunks(2 * MANY, DISABLE_DEVICE_ORDER=True) == whole  # the host would wait in between
    assert chunks(2 * MANY, DISABLE_STAGING_RING=True) == whole


def test_a_plan_that_nobody_runs_says_so():
    made = plan(DISCRETE, DISCRETE)
    assert {table.path_of(made, move)[0] for move in made.transfers} == {transfer_paths.HOST_COPY}
    assert all(
        move["reason"] == "no session has looked for a better" for move in made.summary()["moves"]
    )
    ring = transfer_paths.TransferPath(transfer_paths.RING, "no dma-buf: none")
    made = replace(made, paths={made.transfers[0]: ring})
    assert any(f"{transfer_paths.RING} (no dma-buf: none)" in row[3] for row in made.rows())


def test_what_chunks_of_one_device_leave_each_other_is_not_copied():
    with settings.settings(DISABLE_STAGING_RING=True):
        made = plan(DISCRETE, DISCRETE)
    (move,) = (move for move in made.transfers if move.value == "d")
    assert made.chunks[move.source].device == made.chunks[move.target].device == 0
    assert "d" not in {copy.name for each in made.chunks for copy in each.copies}
