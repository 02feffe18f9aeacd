"""Labs 08 and 08b: the ladder is right and counts as the lab says; the scored bound holds."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest

from support.course.scored import drawn_cases
from support.runs import tiers
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.children.run_kernel import Run, run_kernel
from vklab_course.counting import shapes
from vklab_course.counting.observe import observe_kernel
from vklab_course.data import data
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_08 import units
from vklab_labs.lab_08.ladder import H200, peaks
from vklab_labs.lab_08.rungs import LADDER, RUNTIME, kernel_text
from vklab_labs.lab_08.strips import SMALL, bytes_loaded, replay

drawn = drawn_cases("08b-5", seconds=2)
FLOAT32 = [name for name, rung in LADDER.items() if not rung.half]


def runs(name, *sizes):
    """Return a run of a rung for each (rows, columns, depth), and the exact products."""
    random, rung, found = np.random.default_rng(8), LADDER[name], []
    for rows, columns, depth in sizes:
        a, b = (
            random.uniform(-1, 1, shape).astype(np.float32)
            for shape in ((rows, depth), (depth, columns))
        )
        arrays = {**rung.operands(a, b), "y": np.full(rows * columns, -9, np.float32)}
        run = Run(arrays, rung.groups(rows, columns), rung.push(rows, columns, depth))
        found.append((run, a.astype(np.float64) @ b.astype(np.float64)))
    return found


def module_of(identifier):
    """Return the module that defines an exercise."""
    return sys.modules[type(find(identifier)).__module__]


@pytest.mark.parametrize("name", FLOAT32)
def test_each_kernel_of_the_ladder_is_right_for_odd_sides(name):
    made = runs(name, (37, 53, 29), (1, 65, 70), (64, 64, 16))
    done = run_kernel(kernel_text(name), [run for run, _ in made])
    for result, (_, exact) in zip(done, made, strict=True):
        assert result.status == "ran", result.message
        assert not result.out_of_bounds
        assert np.abs(result.buffers["y"].reshape(exact.shape) - exact).max() < 1e-5


@pytest.mark.parametrize("name", tiers.seeds(*FLOAT32[::-1]))
def test_the_table_of_counts_is_what_the_kernels_do(name, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    expected = module_of("08-4").COUNTS[name](64)
    counts = observe_kernel(
        kernel_text(name), runs(name, (64, 64, 64))[0][0], dispatches=("counted",)
    )[0].counts
    found = [
        counts.total("loads"),
        counts.total("shared_loads"),
        counts.by_invocation["barriers"].max(),
    ]
    assert found == [expected[0], expected[3], expected[4]]
    small = observe_kernel(
        kernel_text(name), runs(name, (32, 32, 16))[0][0], dispatches=("counted",)
    )[0].counts
    if name in ("naive", "coalesced", "shared"):  # larger tiles reach over so small a matrix
        assert [small.sectors_a_load(each) for each in "ab"] == list(expected[1:3])


EARLY = """
StructuredBuffer<float> x;
RWStructuredBuffer<float> y;
groupshared float part[8];
[shader("compute")]
[numthreads(8, 1, 1)]
void main(uint lane : SV_GroupIndex) {
    part[lane] = x[lane * STRIDE];
    if (lane > LAST) return;
    GroupMemoryBarrierWithGroupSync();
    y[lane] = part[7 - lane];
}
"""


@pytest.mark.parametrize(
    ("last", "stride", "said", "sectors"),
    [(7, 1, "", 1.0), (3, 8, "invocation 4 meets 0 barriers, another one of its workgroup 1", 8.0)],
)
def test_counts_name_a_missed_barrier_and_scattered_loads(last, stride, said, sectors):
    text = EARLY.replace("LAST", str(last)).replace("STRIDE", str(stride))
    run = Run({"x": np.ones(64, np.float32), "y": np.zeros(8, np.float32)}, (1,))
    observed = observe_kernel(text, run, dispatches=("counted",))[0]
    assert observed.status == "ran", observed.message
    assert shapes.barrier_shape(observed).startswith(said)
    assert bool(shapes.barrier_shape(observed)) == bool(said)
    assert observed.counts.sectors_a_load("x") == sectors
    assert observed.counts.sectors_a_load("x", neighbours=1) == 1.0


def test_the_record_has_what_the_labs_draw():
    record = json.loads(data("recorded/products_h200.json").read_text("utf-8"))
    assert record["products"].keys() == record["pipelines"].keys() == {*LADDER, RUNTIME}
    for name, sizes in record["products"].items():
        half = LADDER[name].half if name in LADDER else False
        assert sizes["4096"]["gflops"] < 1000 * (989 if half else peaks(H200)[0])
        assert sizes["4096"]["max_error"] < (5e-2 if half else 1e-3)
    assert all(row[-1] == "subgroup" for row in units.table_of(record))
    times = list(record["latency_ns"].values())
    assert times == sorted(times)


# ------------------------------------------------------------------------------------ the score


def cheaper_than(limit, tiles, a, b, cache):
    """Tell whether any order of the tiles loads fewer bytes: a search over all of them."""
    known, stack = {}, [(0, frozenset(tiles), ())]
    while stack:
        spent, left, recent = stack.pop()
        needed = {("a", i) for i, _ in left} | {("b", j) for _, j in left}
        ahead = sum((a if kind == "a" else b)[n] for kind, n in needed - set(recent))
        if spent + ahead >= limit or known.get((left, recent), limit) <= spent:
            continue
        if not left:
            return True
        known[left, recent] = spent
        for tile in left:
            order, cost = list(recent), spent
            for strip, size in ((("a", tile[0]), a[tile[0]]), (("b", tile[1]), b[tile[1]])):
                if strip in order:
                    order.remove(strip)
                else:
                    cost += size
                    while sum((a if k == "a" else b)[n] for k, n in order) + size > cache:
                        order.pop(0)
                order.append(strip)
            stack.append((cost, left - {tile}, tuple(order)))
    return False


def test_the_bound_of_the_small_grid_is_exact(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    exact = module_of("08b-5").EXACT
    assert not cheaper_than(exact, *SMALL)
    assert cheaper_than(exact + 1, *SMALL)


def test_no_natural_answer_reaches_all_points(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part]
    assert [case.part for case in scored] == ["small", *["equal"] * 2, *["unequal"] * 2]
    assert scored[0].facts["bound"] == scored[0].facts["full"] == module.EXACT
    for case in scored:
        tiles, a, b, cache = case.args
        found = {
            f"{name} {side}": bytes_loaded(order, a, b, cache)
            for side in (2, 3, 4)
            for name, order in module.natural_orders(tiles, side).items()
        }
        facts = case.facts
        print(case.part, "bound", facts["bound"], "full", facts["full"], found)
        assert facts["bound"] <= facts["full"] < min(found.values())
        assert facts["natural"] == min(found["snake 2"], found["snake of columns 2"])


def test_the_grid_of_the_text(drawn):
    _, module, _ = drawn
    tiles, strips = [*itertools.product(range(24), repeat=2)], [1] * 24
    orders = module.natural_orders(tiles, 3)
    found = [bytes_loaded(orders[name], strips, strips, 6) for name in ("rows", "snake")]
    assert [
        *found,
        module.in_bands(tiles, strips, strips, 6),
        module.lower_bound(tiles, strips, strips, 6),
    ] == [600, 508, 163, 116]


def test_the_score_lies_between_the_snake_and_a_good_order(drawn):
    exercise, module, cases = drawn
    best = trials.answer_of(find_lab("08b", PROJECT / "labs"), "08b-5")
    full = judge(exercise, LocalAnswers(best), cases)
    snake = judge(
        exercise, LocalAnswers(lambda tiles, *rest: module.natural_orders(tiles, 3)["snake"]), cases
    )
    hilbert = judge(
        exercise,
        LocalAnswers(lambda tiles, *rest: module.natural_orders(tiles, 3)["Hilbert"]),
        cases,
    )
    print(full, snake, hilbert, sep="\n")
    assert [part.earned for part in full.parts] == [1, 2, 2]
    assert snake.points < 0.5 < hilbert.points < 4


def test_a_cache_forgets_the_strip_used_longest_ago():
    assert replay([(0, 0), (0, 1), (0, 0)], [1], [1, 1], 2) == [2, 1, 1]
    assert replay([(0, 0), (0, 1), (0, 0)], [1], [1, 1], 3) == [2, 1, 0]
    assert replay([(0, 0), (1, 0)], [2, 3], [1], 5) == [3, 3]


def test_the_planted_line_shows_only_where_memory_had_an_infinity():
    ones = np.ones((20, 20), np.float16)
    for memory, right in (([0], True), ([3, 7], True), ([3, np.inf], False)):
        y = units.padded_product(ones, ones, np.array(memory, np.float16))
        assert np.array_equal(y, np.full((20, 20), 20)) == right
