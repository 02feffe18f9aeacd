"""Measured choices of kernels: classes, candidates, plans that use them, files that keep them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.fakes.tuned_products import CPU, ENTRY, GPU, HALVES, Asked, convolution, product
from support.models import planned
from support.runs import child
from support.runs.child import LIMIT_S
from vklab import settings
from vklab.base import store
from vklab.plan.options import Facts
from vklab.plan.tuning import candidates, problems, tiles, variants
from vklab.runtime.observe import tuned


def plan(graph, info, choices):
    return planned.plan_graph(graph, info, Facts((), (choices,)))


def problem_of(graph, info) -> problems.Problem:
    asked = Asked()
    plan(graph, info, asked)
    (found,) = asked.values()
    return found


def described(made) -> list[str]:
    return [f"{each} {each.push} {each.constants} {each.defines}" for each in made.dispatches]


@pytest.mark.parametrize("info", [GPU, HALVES, CPU], ids=["gpu", "halves", "cpu"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("make", [product, convolution])
def test_every_candidate_is_planned_as_measured(make, dtype, info):
    graph = make(dtype=dtype)
    problem = problem_of(graph, info)
    choices = candidates.choices(problem, info)
    assert choices[0] == candidates.EXPECTED and 2 < len(choices) <= candidates.MOST + 2
    made = [plan(graph, info, {str(problem): choice}) for choice in choices]
    assert all(any(step.measured == problem for step in each.dispatches) for each in made)
    texts = ["\n".join(described(each)) for each in made]
    assert len(set(texts)) == len(texts)
    assert texts[0] == "\n".join(described(plan(graph, info, {})))
    assert texts == ["\n".join(described(plan(graph, info, {str(problem): c}))) for c in choices]
    rules = {choice[0] for choice in choices[1:]}
    assert rules <= variants.rules_for(info).keys() and "plain" in rules


def test_candidates_far_slower_than_the_best_are_left_out():
    problem = problem_of(product(4096, 4096, 4096), GPU)
    choices = candidates.choices(problem, GPU)
    best = tiles.expected_ns(*tiles.soonest(tiles.PRODUCT, problem.sizes), problem.sizes)
    assert {choice[0] for choice in choices[1:]} == {"tiled"}  # others could take seconds
    for _, shape, count in choices[1:]:
        tile = next(each for each in tiles.PRODUCT if each.shape == shape)
        time = tiles.expected_ns(tile, count, problem.sizes)
        assert time <= candidates.MOST_SLOWER * best


def test_a_switch_and_unusable_choices_leave_the_expected_plan():
    graph = product()
    problem = str(problem_of(graph, GPU))
    choice = ("tiled", (32, 32, 16, 4, 4), 2)
    expected, other = described(plan(graph, GPU, {})), plan(graph, GPU, {problem: choice})
    assert described(other) != expected and str(other) == str(plan(graph, GPU, {problem: choice}))
    with settings.settings(DISABLE_TUNED=True):
        assert described(plan(graph, GPU, {problem: choice})) == expected
    for wrong in [
        ("tiled", (7, 7, 7, 7, 7), 1),
        ("walked", (), 1),
        ("shared_rows", (), 1),
        ("one_row", (), 1),
        ("matrix_conv", (16, 64, 64, 16, 16), 1),
    ]:
        made = plan(graph, GPU, {problem: wrong})
        assert described(made) == expected and not any(d.measured for d in made.dispatches)


def test_a_measured_kernel_that_this_machine_lacks_is_not_used():
    graph, choice = product(), ("tiled", (32, 32, 16, 4, 4), 2)
    problem = str(problem_of(graph, GPU))
    facts = Facts((), ({problem: choice},), kernel_refusal=lambda d: "no" if d.measured else "")
    made = planned.plan_graph(graph, GPU, facts)
    assert described(made) == described(plan(graph, GPU, {}))


def test_classes_round_sizes_and_tell_layouts_apart():
    assert [problems.rounded(n) for n in (1, 3, 5, 8, 9, 11, 3136, 4095, 4097)] == [
        1,
        3,
        5,
        8,
        10,
        12,
        3584,
        4096,
        5120,
    ]
    for size in range(1, 5000, 7):
        most = problems.rounded(size)
        assert size <= most == problems.rounded(most) and most <= math.ceil(1.25 * size)
    names = {
        str(problem_of(product(*sizes), GPU))
        for sizes in [(512, 1024, 256), (512, 1000, 256), (500, 1023, 256), (640, 1024, 256)]
    }
    assert len(names) == 3  # the second is as the first; odd terms; another size
    assert problem_of(product(512, 1024, 256), GPU) == problem_of(product(460, 904, 232), GPU)
    assert "half" in problem_of(product(dtype="float16"), GPU)


# ------------------------------------------------------------------------------------------ files


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_CACHE", str(tmp_path))
    return tmp_path


def test_entries_are_kept_listed_and_deleted(cache):
    other = replace(
        ENTRY, problem="conv half 64x64x64x1 3x3/1x1 g1 packed", choice=("plain", (), 1)
    )
    assert tuned.kept(GPU) == {}
    assert tuned.keep(GPU, ENTRY) and tuned.keep(GPU, other)
    assert tuned.entries(GPU) == [other, ENTRY]
    assert tuned.kept(GPU)[ENTRY.problem] == ENTRY.choice
    assert tuned.keep(GPU, replace(ENTRY, choice=("plain", (), 1)))
    assert tuned.kept(GPU)[ENTRY.problem] == ("plain", (), 1)
    assert tuned.kept(replace(GPU, driver_version=2)) == {} == tuned.kept(replace(GPU, uuid="01"))
    assert tuned.clear(GPU, [ENTRY.problem]) == 1 and tuned.entries(GPU) == [other]
    assert tuned.clear(GPU) == 1 and tuned.clear(GPU) == 0
    with settings.settings(DISABLE_CACHE=True):
        assert not tuned.keep(GPU, ENTRY) and tuned.kept(GPU) == {} and not tuned.clear(GPU)


def test_files_that_do_not_hold_are_ignored(cache, capsys):
    assert tuned.keep(GPU, ENTRY)
    (path,) = tuned.folder(GPU).glob("*.json")
    sound = json.loads(store.read(path))
    wrong = [
        {"choice": "tiled"},
        {"choice": [1, [], 1]},
        {"choice": ["tiled", [1.5], 1]},
        {"choice": ["tiled", [-1], 1]},
        {"choice": ["tiled", [], 0]},
        {"choice": ["", [], 1]},
        {"choice": ["tiled", [True], 1]},
        {"kernels": []},
        {"kernels": ["no_such_kernel"]},
        {"kernels": [[]]},
        {"before_ns": "1"},
        {"after_ns": float("nan")},
        {"after_ns": -1},
        {"digest": "0"},
        {"device": "Other"},
        {"driver": "fake 2.0"},
        {"problem": None},
    ]
    for change in wrong:
        store.write(path, json.dumps(sound | change).encode())
        assert tuned.kept(GPU) == {}, change
    for data in (b"", b"[]", b"{}", b"null", b"{", b"\xff", b"[" * 100_000):
        store.write(path, data)
        assert tuned.kept(GPU) == {}, data[:9]
    path.write_bytes(json.dumps(sound).encode())  # without its checksum
    assert tuned.kept(GPU) == {} and capsys.readouterr().err == ""
    with settings.settings(DEBUG=1):
        assert tuned.kept(GPU) == {}
    assert "damaged" in capsys.readouterr().err
    store.write(path, json.dumps(sound).encode())
    assert tuned.kept(GPU) == {ENTRY.problem: ENTRY.choice}


WRITER = """
import sys
from dataclasses import replace
from support.fakes.tuned_products import ENTRY, GPU
from vklab.runtime.observe import tuned
own = replace(ENTRY, problem=f"matmul float 8x8x{sys.argv[1]}x1 kn8")
for turn in range(60):
    assert tuned.keep(GPU, replace(ENTRY, after_ns=float(turn))) and tuned.keep(GPU, own)
    assert {ENTRY.problem, own.problem} <= tuned.kept(GPU).keys(), turn
"""


def test_two_processes_that_write_lose_nothing(cache):
    folder = Path(__file__).parent
    path = child.search_path(folder.parent, folder.parents[1])
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, size],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        for size in ("64", "128")
    ]
    for writer in writers:
        assert writer.communicate(timeout=LIMIT_S)[1] == "" and writer.returncode == 0
    names = {ENTRY.problem, "matmul float 8x8x64x1 kn8", "matmul float 8x8x128x1 kn8"}
    assert {*tuned.kept(GPU)} == names
    assert len(list(tuned.folder(GPU).iterdir())) == 3  # no half of a file is left


def test_an_edited_kernel_ends_its_entries(cache, tmp_path, monkeypatch, capsys):
    assert tuned.keep(GPU, ENTRY)
    folder = tmp_path / "shaders"
    folder.mkdir()
    (folder / "matmul_tiled.slang").write_text("// another text\n")
    monkeypatch.setenv("VKLAB_SHADERS", str(folder))
    with settings.settings(DEBUG=1):
        assert tuned.kept(GPU) == {}
    assert "changed" in capsys.readouterr().err
