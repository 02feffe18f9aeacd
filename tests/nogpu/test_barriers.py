"""Barriers against a brute-force search for hazards: none too few, none too many."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from support.checks.hazards import hazards, superfluous
from support.checks.random_work import WEIGHTS, works
from vklab.plan import barriers
from vklab.plan.barriers import Access
from vklab.plan.memory import Slot

A, B, C, D = (Slot("arena", 256 * i, 256) for i in range(4))


def kernel(reads: list[Slot], writes: list[Slot]) -> Access:
    return Access("compute_shader", tuple(reads), tuple(writes))


@given(works())
def test_every_hazard_has_a_barrier_and_every_barrier_a_hazard(work):
    found = barriers.find_barriers(work, to_host=False)
    assert hazards(work, found) == []
    assert superfluous(work, found) == []


@given(works())
def test_the_host_sees_everything_that_was_written(work):
    found = barriers.find_barriers(work)
    assert hazards(work, found, [slot for item in work for slot in item.writes]) == []
    assert [b.before for b in found if "host" in b.target] == ([len(work)] if work else [])


@pytest.mark.parametrize(("work", "before"), [
    ([kernel([A], [B]), kernel([B], [C])], [1]),  # read after write
    ([kernel([A], [B]), kernel([C], [A])], [1]),  # write after read
    ([kernel([A], [B]), kernel([C], [B])], [1]),  # write after write
    ([kernel([A], [B]), kernel([A], [C])], []),  # reading twice harms nobody
    ([kernel([A], [B]), kernel([A], [C]), kernel([B, C], [D])], [2]),  # one barrier for two
    ([kernel([WEIGHTS], [A]), kernel([WEIGHTS], [B])], []),
    ([kernel([A], [A]), kernel([A], [A]), kernel([A], [A])], [1, 2]),
    ([], []),
])  # fmt: skip
def test_barriers_by_hand(work, before):
    assert [b.before for b in barriers.find_barriers(work, to_host=False)] == before


def test_copies_are_ordered_by_their_own_stage():
    work = [Access("transfer", (A,), (B,)), kernel([B], [C]), Access("transfer", (C,), (D,))]
    first, second, last = barriers.find_barriers(work)
    assert (first.source, first.target) == (("transfer",), ("compute_shader",))
    assert (second.source, second.target) == (("compute_shader",), ("transfer",))
    assert (last.source, last.target) == (("compute_shader", "transfer"), ("host",))


def test_the_search_for_hazards_finds_planted_ones():
    work = [Access("transfer", (A,), (B,)), kernel([B], [C])]
    wrong_stage = barriers.Barrier(1, ("compute_shader",), ("compute_shader",))
    too_late = barriers.Barrier(2, ("transfer",), ("compute_shader",))
    right = barriers.Barrier(1, ("transfer",), ("compute_shader",))
    assert hazards(work, []) == ["step 0 and step 1: read after write"]
    assert hazards(work, [wrong_stage]) and hazards(work, [too_late])
    assert not hazards(work, [right])
    assert superfluous(work, [right, replace(right)]) == [right, right]
    assert hazards(work, [right], [C]) == ["step 1 and the host: read after write"]
