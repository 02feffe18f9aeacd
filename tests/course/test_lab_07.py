"""Labs 07 and 07b: bounds of the scored exercise, the model of banks, and the recorded GPU."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from support.course.figures import svg_of
from support.course.scored import drawn_cases
from vklab_course import data
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_07 import banks, conflicts, shared_memory, workgroups

drawn = drawn_cases("07b-3", seconds=4)


def more_answers(accesses):
    """Return the transactions of further natural tables, by name."""
    row, column = np.divmod(np.arange(1024).reshape(32, 32), 32)
    turned = np.array([int(f"{n:05b}"[::-1], 2) for n in range(32)])
    tables = {
        "column by column": column * 32 + row,
        "skew of 4 rows": banks.lined_up(column + row // 4).reshape(32, 32),
        "two skews": banks.lined_up(column + 5 * row + row // 8).reshape(32, 32),
        "XOR, reversed column": banks.lined_up(turned[column] ^ row).reshape(32, 32),
        "XOR of 3 r": banks.lined_up(column ^ 3 * row % 32).reshape(32, 32),
        "Gray code": banks.lined_up(column ^ row ^ row >> 1).reshape(32, 32),
    }
    chance = np.random.default_rng(1)
    shuffled = [32 * row + chance.permutation(32)[(column + k) % 32] for k in range(3)]
    found = {name: banks.total(table.reshape(-1), accesses) for name, table in tables.items()}
    return found | {"shuffled rows": min(banks.total(t.reshape(-1), accesses) for t in shuffled)}


def test_no_natural_answer_reaches_the_bound(drawn):
    _, _, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        accesses = case.args[0]
        usual = banks.obvious(accesses)
        skews = {name: usual.pop(name) for name in list(usual) if name.startswith("skew")}
        found = {**usual, "best skew": min(skews.values()), **more_answers(accesses)}
        print(case.part, "bound", case.expected, found)
        full = 240 if case.part == "picture" else case.expected
        assert min(found.values()) > full >= case.expected == len(accesses)
        assert case.facts["natural"] == min(*usual.values(), *skews.values())
    assert [case.part for case in scored] == ["picture", "first", "second", "third"]


def test_half_way_answers_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("07b", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "07b-3")), cases)
    assert [part.earned for part in best.parts] == [1, 1, 1, 1, 1]
    for wrong in (each for each in answers_of(lab).wrong if each[0] == "07b-3"):
        verdict = judge(exercise, LocalAnswers(wrong[1]), cases)
        print(verdict.points, wrong[2])
        assert verdict.points < 5


def test_the_picture_has_the_costs_that_the_text_names():
    accesses = banks.accesses_of(banks.PICTURE)
    costs = banks.obvious(accesses)
    assert (costs["row by row"], costs["XOR"], costs["skew by 6"]) == (1504, 1152, 288)
    assert min(costs.values()) == 288 and len(accesses) == 192
    assert all(len(set(access.tolist())) == 32 for access in accesses)
    number = np.arange(32)
    turn = np.bitwise_xor.reduce(
        np.where(number[:, None] >> np.arange(5) & 1, (17, 27, 6, 22, 24), 0), axis=1
    )
    least = banks.lined_up(number ^ turn[:, None])
    assert banks.total(least, accesses) == 224 and len(set(least.tolist())) == 1024
    drawn = conflicts.draw_bank_grid(
        least, accesses, {"rows": 32, "columns": 32, "diagonals": 64, "blocks": 64}
    )
    assert "rows: 32; columns: 32; diagonals: 96; blocks: 64), the worst 2" in drawn.alt


def test_lanes_that_wait_are_drawn_with_the_missing_lanes_of_the_last_subgroup():
    drawn = workgroups.draw_active([3, 1, 5, 2, 2], 4, "Five invocations.")
    assert "13 turns of work in 28 lane turns: 46% active" in drawn.alt
    svg = svg_of(drawn)
    assert svg.count('stroke="#0072B2"') == 5 and svg.count('stroke="#E69F00"') == 6


def test_transactions_are_counted_as_the_model_says():
    lab = find_lab("07b", PROJECT / "labs")
    transactions = trials.answer_of(lab, "07b-2")
    table = np.random.default_rng(0).permutation(1024)
    accesses = banks.accesses_of([("wrapped", 3), ("xor", 4, 1, 0, 2, 3), ("block", 2, 16)])
    each = [transactions(table[access].tolist()) for access in accesses]
    assert banks.of_each(table, accesses).tolist() == each


def test_no_table_of_a_small_tile_is_free_of_conflicts_on_diagonals():
    """The proof of lab 07b holds for any even side; four rows of a tile can be tried out."""
    first, *_ = orders = list(itertools.permutations(range(4)))  # banks have no names
    free = 0
    for rows in itertools.product([first], orders, orders, orders):
        if all(len({row[c] for row in rows}) == 4 for c in range(4)):
            free += all(len({rows[r][(r + d) % 4] for r in range(4)}) == 4 for d in range(4))
    assert free == 0


def test_the_record_has_what_the_labs_show():
    record = json.loads(data("recorded/shared_memory_h200.json").read_text("utf-8"))
    assert record["subgroup_size"] == 32 and record["type"] == "discrete"
    assert set(record["sums"]["time_ns"]) == {"serial", "tree", "subgroups"}
    assert {int(s) for s in record["banks"]["time_ns"]} == set(shared_memory.STRIDES)
    for kinds in (record["histograms"]["evenly spread"], record["histograms"]["one bin"]):
        assert [
            max(kinds[name]["lost"]) == 0
            for name in ("no atomics", "global atomics", "shared atomics")
        ] == [False, True, True]
    assert len(record["orders"]["sums"]) == 50


@pytest.mark.slow
@pytest.mark.gpu
def test_the_program_measures_this_device(tmp_path):
    shared_memory.compile_kernels(tmp_path)
    record = shared_memory.record(tmp_path, loads=4)
    assert json.loads(json.dumps(record)) == record
    assert len(record["banks"]["time_ns"]) == len(shared_memory.STRIDES)
