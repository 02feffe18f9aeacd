"""Lab 11: the bound is exact, the rules pack rightly, no wrong packing reaches a driver."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest

import vklab
from support.course.scored import drawn_cases
from support.fakes.fake_device import UNIFIED, fake_device
from vklab.base.names import internal
from vklab.plan import memory
from vklab.plan.memory import Lifetime
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_11 import evictions, offload, packing
from vklab_labs.lab_11 import memory_plans as figures
from vklab_labs.shared.offsets import verified
from vklab_labs.shared.recorded_graphs import NAMES, recorded

drawn = drawn_cases("11-5", seconds=4.0)


def second_answers(identifier):
    lab = find_lab("11", PROJECT / "labs")
    return next(each[1] for each in answers_of(lab).alternative if each[0] == identifier)


def brute_force(values, cap):
    """Return the fewest bytes moved, over all sets of moves."""
    moves = offload.gaps_of(values)
    sets = chain.from_iterable(combinations(moves, n) for n in range(len(moves) + 1))
    return min(
        (
            offload.moved_bytes(values, some)
            for some in sets
            if max(offload.live_bytes(values, some)) <= cap
        ),
        default=np.inf,
    )


def test_no_natural_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    second = second_answers("11-5")
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        values, cap = case.args
        found = evictions.natural(values, cap, 300)
        print(case.part, "cap", cap, "bound", case.expected, found)
        assert offload.moved_bytes(values, second(values, cap)) == case.expected
        assert min(found.values()) > case.expected
        assert case.facts["natural"] == found["farthest"]
    last, bound = scored[-1].args, scored[-1].expected
    assert module.fewest_moved(*last, coarse=True) > bound  # a search that forgets the copies
    assert len(scored) == 2


def test_the_bound_is_that_of_brute_force(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    module = sys.modules[type(find("11-5")).__module__]
    tried = 0
    for seed in range(40):
        values = offload.drawn_values(np.random.default_rng(seed), 11)
        if len(offload.gaps_of(values)) > 10:
            continue
        low = max(offload.live_bytes(values, offload.gaps_of(values)))
        for cap in (low, (low + max(offload.live_bytes(values))) // 2):
            least = brute_force(values, cap)
            assert module.fewest_moved(values, cap) == least
            assert offload.moved_bytes(values, second_answers("11-5")(values, cap)) == least
            tried += least > 0
        assert module.fewest_moved(values, low - 1) == brute_force(values, low - 1) == np.inf
    assert tried > 10


def test_half_way_answers_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("11", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "11-5")), cases)
    assert [part.earned for part in best.parts] == [1, 2, 2]
    rule = judge(exercise, LocalAnswers(offload.farthest_first), cases)
    assert [part.earned for part in rule.parts] == [1, 0, 0]
    for wrong in (each for each in answers_of(lab).wrong if each[0] == "11-5"):
        assert judge(exercise, LocalAnswers(wrong[1]), cases).points < 5


def test_each_plan_loses_one_value_through_a_view(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    right = [type(find("11-4"))(number).questions() for number in range(len(find("11-4").variants))]
    found = {(each["step"].right, each["value"].right) for each in right}
    assert len(found) == len(right) == 4


@pytest.mark.parametrize("fit", packing.FITS)
@pytest.mark.parametrize("order", packing.ORDERS)
def test_every_rule_packs_without_overlap(order, fit):
    for seed in range(3):
        lifetimes = packing.drawn_lifetimes(seed)
        offsets, size = packing.pack_by(lifetimes, order, fit)
        memory.check_offsets(lifetimes, offsets, size)
        assert size >= memory.lower_bound(lifetimes)


@pytest.mark.parametrize("name", NAMES)
def test_by_size_reaches_the_bound_of_a_real_network(name):
    lifetimes = packing.planned_memory(name).lifetimes
    assert packing.overhead(lifetimes, "by size") == 0
    assert (packing.overhead(lifetimes, "by birth") > 0) == (name in {"unet", "bert_base"})
    values = offload.values_of(recorded(name))
    idle = max(offload.live_bytes(values, offload.gaps_of(values)))
    assert (idle < max(offload.live_bytes(values))) == (name == "bert_base")


def test_scratch_of_nine_quarters_makes_by_size_miss_the_bound(monkeypatch):
    first = fake_device(type="cpu", memory_types=UNIFIED)
    monkeypatch.setattr("vklab.devices", lambda: [first])
    plan = packing.planned_memory("unet", DISABLE_PASSES="")
    sizes = {life.name: life.size_bytes for life in plan.lifetimes}
    assert 4 * sizes[internal("conv2d_1", "tiles")] == 9 * sizes["relu"]
    assert round(packing.overhead(plan.lifetimes, "by size")) == 11
    assert packing.overhead(plan.lifetimes, "by crowd") == 0
    assert plan.arena_bytes == plan.lower_bound_bytes


@pytest.mark.parametrize("name", NAMES)
def test_outside_inception_most_changes_of_size_are_by_two_or_four(name):
    same, twos, others = packing.size_changes(name)
    assert same > max(twos, others)
    assert (twos > 5 * others) == (name != "inception_v1")


def test_the_work_to_make_a_value_of_unet_again_is_what_the_text_says():
    graph = recorded("unet")
    operators = [node.op_type for node in graph.nodes]
    first = graph.nodes[: operators.index("MaxPool")]
    assert first[-1].outputs == ("relu_1",)
    assert round(sum(node.flops for node in first) / 1e9, 1) == 3.9
    assert graph.size_bytes("relu_1") == 12.25 * 2**20


def test_plans_of_whole_networks_need_no_64_bit_integers(monkeypatch):
    first = vklab.devices()[0]
    less = replace(first, features=first.features - {"shaderInt64"})
    monkeypatch.setattr("vklab.devices", lambda: [less])
    assert len(packing.planned_memory("bert_base").lifetimes) == 112


def test_a_packing_with_shared_bytes_has_a_title_that_says_so():
    two = (Lifetime("a", 10, 0, 1, 1), Lifetime("b", 10, 1, 2, 1))
    assert "WRONG: a and b" in figures.draw_packing(two, ({"a": 0, "b": 9}, 19), "text").alt
    assert "WRONG" not in figures.draw_packing(two, ({"a": 0, "b": 10}, 20), "text").alt


@pytest.mark.parametrize("step", [2, 6])
def test_a_move_that_follows_no_use_is_refused_with_a_sentence(step):
    with pytest.raises(ValueError, match=f"'a', {step}. is no move: a is used in steps"):
        offload.live_bytes(offload.VALUES, [("a", step)])


def test_a_wrong_packing_is_refused_with_a_sentence():
    two = (Lifetime("a", 10, 0, 1, 1), Lifetime("b", 10, 1, 2, 1))
    for answer, words in (
        (({"a": 0, "b": 9}, 19), "both alive at step 1 and share bytes"),  # by one byte
        (({"a": 0}, 20), "b is placed at None"),
        (({"a": 0, "b": 10}, 19), "b ends at byte 20 of an arena of 19"),
        (({"a": 0, "b": 10.0}, 20), "b is placed at 10.0"),
        (({"a": 0, "b": 10}, None), "no whole number"),
        (None, "got NoneType"),
    ):
        with pytest.raises(AssertionError, match=words):
            verified(lambda lifetimes, aliasing, answer=answer: answer)(two)
    for kind in (int, np.int64):  # a number of NumPy is a whole number, too
        right = ({"a": kind(0), "b": kind(10)}, kind(20))
        got = verified(lambda lifetimes, aliasing, right=right: right)(two, True)
        assert got == ({"a": 0, "b": 10}, 20)
        assert {type(got[1]), *map(type, got[0].values())} == {int}
