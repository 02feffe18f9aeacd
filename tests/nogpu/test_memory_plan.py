"""Memory planning: no two values that live together overlap, and little is wasted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.checks.hazards import hazards, work_of
from support.models import exported_models, planned
from support.rules import memory_table
from vklab import settings
from vklab.errors import PlanError
from vklab.graph import onnx_import, passes
from vklab.plan import memory
from vklab.plan.memory import Lifetime, MemoryPlan, Slot
from vklab.types import TensorInfo

SIZES = st.sampled_from([0, 1, 4, 255, 256, 257, 1000, 4096, 10007])


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    spans = draw(st.lists(st.tuples(SIZES, st.integers(0, 15), st.integers(0, 6)), max_size=25))
    return [
        Lifetime(f"v{i}", size, first, first + length)
        for i, (size, first, length) in enumerate(spans)
    ]


def check_offsets(lives: list[Lifetime], aliasing: bool) -> int:
    offsets, size = memory.assign_offsets(lives, aliasing)
    assert offsets.keys() == {life.name for life in lives}
    for life in lives:
        assert offsets[life.name] % 256 == 0 and offsets[life.name] + life.size_bytes <= size
    for a, b in itertools.combinations(lives, 2):
        together = a.first <= b.last and b.first <= a.last
        apart = (
            offsets[a.name] + a.size_bytes <= offsets[b.name]
            or offsets[b.name] + b.size_bytes <= offsets[a.name]
        )
        assert apart or (aliasing and not together), (a, b)
    return size


@given(lifetimes())
def test_values_that_live_together_lie_apart(lives):
    size = check_offsets(lives, aliasing=True)
    assert size >= memory.lower_bound(lives)


@given(lifetimes())
def test_without_aliasing_all_values_lie_apart(lives):
    check_offsets(lives, aliasing=False)


@given(lifetimes())
def test_the_lower_bound_is_the_fullest_step(lives):
    at_step = [
        sum(-(-life.size_bytes // 256) * 256 for life in lives if life.first <= step <= life.last)
        for step in range(30)
    ]
    assert memory.lower_bound(lives) == max(at_step)


def chain(sizes: list[int]) -> list[Lifetime]:
    """Each value is read by the next step only, as in a plain network."""
    return [Lifetime(f"v{i}", size, i, i + 1) for i, size in enumerate(sizes)]


RESIDUAL = [
    life
    for i in range(0, 60, 3)
    for life in (
        Lifetime(f"skip{i}", 4096, i, i + 3),
        Lifetime(f"a{i}", 8192, i + 1, i + 2),
        Lifetime(f"b{i}", 4096, i + 2, i + 3),
    )
]


@pytest.mark.parametrize("lives", [
    chain([1024] * 50), chain([50 << 10, 12 << 10, 25 << 10, 6 << 10, 512, 512]),
    chain([256 * (i % 7 + 1) for i in range(100)]), RESIDUAL, [],
], ids=["even", "network", "saw", "residual", "nothing"])  # fmt: skip
def test_friendly_cases_take_hardly_more_than_the_lower_bound(lives):
    assert check_offsets(lives, aliasing=True) <= 1.05 * memory.lower_bound(lives)


@given(st.lists(SIZES, max_size=20), st.sampled_from([256, 1024, 5000, 1 << 20]))
def test_pack_lays_values_side_by_side_within_the_limit(sizes, limit):
    named = [(f"v{i}", size) for i, size in enumerate(sizes)]
    slots, arenas = memory.pack(named, "weights", limit)
    assert [(name, slot.size_bytes) for name, slot in slots.items()] == named
    for a, b in itertools.combinations(slots.values(), 2):
        assert not a.overlaps(b)
    for slot in slots.values():
        assert slot.offset_bytes % 256 == 0
        assert slot.offset_bytes + slot.size_bytes <= arenas[slot.arena]
    for arena, size in arenas.items():
        alone = sum(slot.arena == arena for slot in slots.values()) == 1
        assert arena.startswith("weights") and (size <= limit or alone)
        assert size > 0  # a buffer of no bytes cannot be made


@pytest.mark.parametrize(("other", "expected"), [
    (Slot("a", 0, 10), True), (Slot("a", 10, 10), False), (Slot("a", 9, 1), True),
    (Slot("b", 0, 10), False), (Slot("a", 3, 2), True), (Slot("a", 4, 0), False),
])  # fmt: skip
def test_slots_overlap_where_they_share_a_byte(other, expected):
    slot = Slot("a", 0, 10)
    assert slot.overlaps(other) is other.overlaps(slot) is expected


def test_a_memory_plan_shows_itself():
    lives = (Lifetime("first <value>", 1024, 0, 1), Lifetime("second", 2048, 1, 2))
    offsets, size = memory.assign_offsets(lives)
    slots = {life.name: Slot("activations", offsets[life.name], life.size_bytes) for life in lives}
    arenas = {"weights:a": 512, "weights:b": 256, "activations": size}
    plan = MemoryPlan(slots, arenas, lives, memory.lower_bound(lives))
    assert str(plan) == ("memory: 3.0 KiB of activations (lower bound 3.0 KiB), 768 B of weights")
    assert "first &lt;value&gt;" in plan._repr_html_()


@pytest.mark.parametrize(
    ("offsets", "size", "said"),
    [
        ({"a": 0, "b": 256}, 1024, "share bytes"),
        ({"a": 0, "b": 512}, 768, "b ends at byte 812 of an arena of 768"),
        ({"a": -256, "b": 512}, 1024, "a is placed at -256"),
        ({"a": 0, "b": 100}, 1024, "b is placed at 100"),
        ({"a": 0}, 1024, "b is placed at None"),
        ({"a": 0, "b": 512.0}, 1024, "b is placed at 512.0"),
    ],
)
def test_a_placement_that_no_device_should_see(offsets, size, said):
    lives = [Lifetime("a", 300, 0, 2), Lifetime("b", 300, 1, 3)]
    with pytest.raises(PlanError, match=said):
        memory.check_offsets(lives, offsets, size)


def test_values_that_never_meet_may_share_bytes():
    lives = [Lifetime("a", 300, 0, 2), Lifetime("b", 300, 3, 3)]
    memory.check_offsets(lives, {"a": 0, "b": 0}, 512)


# ------------------------------------------------------------------------------ real models


def check_row(row: memory_table.Row) -> None:
    assert row.arena <= 1.05 * row.bound, row
    assert row.arena < row.plain or row.bound == 0, row


@pytest.mark.slow
def test_arenas_of_the_light_models_are_close_to_the_bound():
    rows = list(memory_table.light_rows())
    for row in rows:
        check_row(row)
    assert sum(row.plain > 4 * row.arena for row in rows) >= 4


@pytest.mark.parametrize("name", exported_models.NAMES)
def test_arenas_of_exported_models_are_close_to_the_bound(name):
    for row in memory_table.exported_rows(name):
        check_row(row)


@pytest.mark.parametrize("switches", [{}, {"DISABLE_FUSION": 1}, {"DISABLE_IN_PLACE": 1}],
                         ids=lambda switches: "".join(switches) or "plain")  # fmt: skip
def test_no_two_values_of_a_step_share_bytes_but_those_in_place(switches):
    proto = exported_models.load("unet")
    graph = onnx_import.load_graph(proto)
    inputs = exported_models.inputs_of(proto, {"batch": 1, "height": 20, "width": 44})
    known = {name: TensorInfo(name, str(a.dtype), a.shape) for name, a in inputs.items()}
    with settings.settings(**switches):
        part, _ = planned.next_chunk(graph, known, memory_table.INFO)
        plan = planned.plan_graph(passes.run(part.graph), memory_table.INFO)
    replaced = 0
    for dispatch in plan.dispatches:
        (_, written), *_ = dispatch.writes
        for binding, read in dispatch.reads:
            slots = plan.memory.slots[read.name], plan.memory.slots[written.name]
            if slots[0].overlaps(slots[1]):
                assert binding in dispatch.in_place and slots[0] == slots[1]
                replaced += 1
    assert bool(replaced) == ("DISABLE_IN_PLACE" not in switches)
    assert hazards(*work_of(plan.chunks[0])) == []
