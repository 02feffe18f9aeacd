"""The check behind every plan agrees with looking at every pair, and catches planted mistakes."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from support.checks import plan_checks
from support.checks.hazards import hazards
from support.checks.random_work import STAGES, works
from support.fakes.fake_device import DISCRETE, UNIFIED, fake_device
from support.fakes.placed_graphs import network
from support.graphs.small_models import model, value
from support.models.planned import plan_graph, plan_of, proto_of
from vklab import settings
from vklab.graph import passes
from vklab.plan import arenas, barriers, device_chunk, memory
from vklab.plan.barriers import Access, Barrier
from vklab.plan.memory import Slot
from vklab.plan.tuning import in_place

SETS = st.lists(STAGES, min_size=1, max_size=2, unique=True).map(tuple)
BARRIERS = st.lists(
    st.builds(Barrier, st.integers(0, 10), SETS, SETS),
    max_size=6,
    unique_by=lambda barrier: barrier.before,
)


def unordered(work, barriers, host_reads=()) -> list[str]:
    found = plan_checks.order_problems(work, barriers, host_reads)
    return [line for line in found if "separates nothing" not in line]


@given(works(), BARRIERS, st.booleans())
def test_hazards_are_those_that_looking_at_every_pair_finds(work, barriers, by_host):
    host_reads = work[-1].writes if by_host and work else ()
    pairs = hazards(work, barriers, host_reads)
    found = unordered(work, barriers, host_reads)
    assert bool(found) == bool(pairs)
    assert {line for line in found if "host" not in line} <= set(pairs)


@given(works())
def test_barriers_as_planned_are_fine_and_one_more_is_idle(work):
    placed = list(barriers.find_barriers(work))
    assert plan_checks.order_problems(work, placed) == []
    taken = {barrier.before for barrier in placed}
    for place in set(range(len(work))) - taken:
        more = Barrier(place, ("compute_shader", "transfer"), ("compute_shader", "transfer"))
        found = plan_checks.order_problems(work, [*placed, more])
        assert any("separates nothing" in line for line in found)


# ------------------------------------------------------------------------------ mutants


def diamond(size: int = 64):
    """Return a graph whose values die at different times."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Abs", ["b"], ["c"]),
        helper.make_node("Mul", ["a", "c"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["y"]),
    ]
    return model(nodes, [value("x", (8, size))], ["y"])


def without(monkeypatch, number):
    find = barriers.find_barriers
    monkeypatch.setattr(
        barriers,
        "find_barriers",
        lambda work: tuple(b for n, b in enumerate(find(work)) if n != number),
    )


def moved(monkeypatch, number):
    find = barriers.find_barriers
    monkeypatch.setattr(
        barriers,
        "find_barriers",
        lambda work: tuple(
            replace(b, before=b.before + 1) if n == number else b for n, b in enumerate(find(work))
        ),
    )


def masked(monkeypatch, number):
    """Copies are taken for dispatches: the first barrier waits for the wrong stage."""
    find = barriers.find_barriers
    wrong = {"transfer": "compute_shader", "compute_shader": "transfer"}

    def changed(work):
        return tuple(
            replace(b, source=tuple(wrong[s] for s in b.source)) if n == number else b
            for n, b in enumerate(find(work))
        )

    monkeypatch.setattr(barriers, "find_barriers", changed)


def untold(monkeypatch, number):
    """The last barrier forgets the host."""
    find = barriers.find_barriers
    monkeypatch.setattr(barriers, "find_barriers", lambda work: find(work, to_host=False))


def idle(monkeypatch, number):
    find = barriers.find_barriers
    everything = ("compute_shader", "transfer")
    monkeypatch.setattr(
        barriers, "find_barriers", lambda work: (Barrier(0, everything, everything), *find(work))
    )


def aliased(monkeypatch, number):
    """Two values that live together share bytes; nobody but the check looks."""
    assign = memory.assign_offsets

    def wrong(lives, aliasing=True):
        offsets, size = assign(lives, aliasing)
        return dict.fromkeys(offsets, 0), size

    monkeypatch.setattr(memory, "assign_offsets", wrong)
    monkeypatch.setattr(memory, "check_offsets", lambda *given: None)


def short_lived(monkeypatch, number):
    """Every value dies a step before its last reader."""
    find = arenas._lifetimes
    monkeypatch.setattr(
        arenas,
        "_lifetimes",
        lambda *given: tuple(
            replace(life, last=max(life.first, life.last - 1)) for life in find(*given)
        ),
    )


def overwritten(monkeypatch, number):
    """A result is written over an operand that is read again."""

    def owners(lowered, placed, lasting):
        found = {root: root for root in lowered.roots.values()}
        return found | {"b": "a"}

    monkeypatch.setattr(in_place, "owners", owners)


def too_early(monkeypatch, number):
    """What is read by the second dispatch is not there yet; barriers are as that order asks."""
    make = device_chunk._arranged

    def wrong(*given):
        lowered, arranged, steps, _ = make(*given)
        first, second = lowered.dispatches[:2]
        swap = {id(first): second, id(second): first}
        swapped = tuple(swap.get(id(step), step) for step in steps)
        return lowered, arranged, swapped, device_chunk._barriers(swapped, arranged)

    monkeypatch.setattr(device_chunk, "_arranged", wrong)


MUTANTS = {
    "dropped": (without, "read after write|write after read|write after write"),
    "moved": (moved, "read after write"), "masked": (masked, "read after write"),
    "untold": (untold, "the host reads"), "idle": (idle, "separates nothing"),
    "aliased": (aliased, "overwritten|written over"), "short-lived": (short_lived, "over"),
    "overwritten": (overwritten, "overwritten"), "too early": (too_early, "not there yet"),
}  # fmt: skip


@pytest.mark.parametrize("types", [UNIFIED, DISCRETE], ids=["unified", "discrete"])
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_planner_is_caught_wherever_a_test_plans(name, types, monkeypatch):
    mutate, message = MUTANTS[name]
    info = fake_device(memory_types=types)
    with settings.settings(DISABLE_FUSION=True, DISABLE_DIRECT_IO=types is DISCRETE):
        sound = plan_of(diamond(), info)
        mutate(monkeypatch, 0)
        with pytest.raises(AssertionError, match=message):
            plan_of(diamond(), info)
        assert plan_checks.problems
        with plan_checks.unchecked("the mistake is planted"):
            wrong = plan_of(diamond(), info)
    assert wrong.chunks != sound.chunks or wrong.memory != sound.memory
    plan_checks.problems.clear()


@pytest.mark.parametrize("name", ["conv_few", "digits_cnn"])
def test_every_barrier_of_a_real_plan_is_missed(name, monkeypatch):
    proto = proto_of(name)
    for number in range(len(plan_of(proto).chunks[0].barriers)):
        with pytest.MonkeyPatch.context() as patch:
            without(patch, number)
            with pytest.raises(AssertionError):
                plan_of(proto)
    plan_checks.problems.clear()


def test_plans_made_anywhere_are_checked():
    before = dict(plan_checks.counts)
    plan_of(diamond())
    assert plan_checks.counts == before | {"checked": before["checked"] + 1}


@given(st.integers(0, 2**32))
def test_what_is_fused_at_random_reads_what_is_made_and_not_overwritten(seed):
    rng, names, layers = random.Random(seed), ["x", "z"], []
    reads = {"Relu": 1, "Softmax": 1, "Transpose": 1, "Add": 2, "Max": 2, "MatMul": 2}
    for number in range(rng.randint(2, 10)):
        kind = rng.choice(list(reads))
        layers.append((f"v{number}", kind, tuple(rng.choices(names[-3:], k=reads[kind]))))
        names.append(f"v{number}")
    info = fake_device(memory_types=rng.choice([UNIFIED, DISCRETE]))
    plan_graph(passes.run(network(layers, rng.choice([8, 600]))), info)


@pytest.mark.full
def test_thousands_of_steps_take_seconds():
    work = [
        Access(
            "compute_shader",
            (Slot("a", 256 * (i % 3), 256),),
            (Slot("a", 256 * ((i + 1) % 3), 256),),
        )
        for i in range(10_000)
    ]
    start = time.process_time()
    assert plan_checks.order_problems(work, barriers.find_barriers(work)) == []
    assert time.process_time() - start < 10
