"""What lab 03 shows: a record and its claims, copies on this device, swaps that are verified."""

from __future__ import annotations

import json

import pytest

from support.course.figures import svg_of
from vklab.plan.memory import round_up
from vklab_course import data
from vklab_labs.lab_03 import heaps, paths, swapped_memory
from vklab_labs.shared import copies
from vklab_labs.shared.machines import memory_table, recorded_table

RECORD = json.loads(data("recorded/copies_h200.json").read_text("utf-8"))


def first_fit(free, size, alignment, atom=64):
    for number, (offset, there) in enumerate(free):
        start, length = round_up(offset, max(alignment, atom)), round_up(size, atom)
        if start + length <= offset + there:
            pieces = [(offset, start - offset), (start + length, offset + there - start - length)]
            return start, [*free[:number], *(p for p in pieces if p[1]), *free[number + 1 :]]
    raise MemoryError


def test_the_record_carries_what_the_text_says_of_it():
    speeds = {
        path: {int(size): speed / 1e9 for size, speed in each.items()}
        for path, each in RECORD["bytes_a_second"].items()
    }
    assert set(speeds) == set(copies.PATHS) and RECORD["device"] == "NVIDIA H200"
    assert round(speeds["staging"][4096], 2) == 0.19 and round(speeds["mapped"][4096], 1) == 3.5
    assert 18e-6 < 4096 / (speeds["staging"][4096] * 1e9) < 24e-6
    assert [round(speeds[path][16 << 20]) for path in ("staging", "mapped")] == [10, 17]
    taken = [(16 << 20) / speeds[path][16 << 20] / 1e6 for path in ("staging", "host")]
    assert [round(milliseconds, 1) for milliseconds in taken] == [1.6, 1.2]
    assert all(0.03 < speed < 0.065 for speed in speeds["mapped read"].values())
    factors = [
        speeds["readback"][size] / speed
        for size, speed in speeds["mapped read"].items()
        if size >= 64 << 10
    ]
    assert 80 < min(factors) < 85 and 305 < max(factors) < 315
    assert all(
        speed[64 << 20] < speed[16 << 20] and speed[64 << 20] < speed[256 << 20]
        for path, speed in speeds.items()
        if path != "mapped read"
    )
    listed, types = recorded_table(RECORD)
    assert [heap.device_local for heap in listed] == [True, False]
    assert [kind.heap for kind in types if {"device_local", "host_visible"} <= kind.flags] == [0]


def test_copies_are_measured_on_this_device_and_a_record_says_what_it_is():
    made = copies.record(0, sizes=(4096, 1 << 16), repeats=2)
    assert made["date"] and made["heaps"] and made["memory_types"]
    paths_here = made["bytes_a_second"]
    assert {"staging", "readback", "host"} <= set(paths_here) <= set(copies.PATHS)
    assert all(speed > 0 for each in paths_here.values() for speed in each.values())
    assert (
        "H200, staging: at most 10.5 GB/s"
        in paths.draw_copies({"here": paths_here, "H200": RECORD["bytes_a_second"]}, "c").alt
    )


@pytest.mark.parametrize("path", [paths.draw_reach, paths.draw_paths, paths.draw_atoms,
                                  paths.draw_block])  # fmt: skip
def test_concept_diagrams_have_words(path):
    drawn = path()
    assert len(drawn.alt) > 40 and len(drawn.caption) > 20


def test_heaps_and_a_ranking_are_drawn():
    drawn = heaps.draw_heaps(
        {"card": memory_table("radeon"), "M1": memory_table("m1")},
        "c",
        {"card": [2, 1, 9], "M1": []},
    )
    assert "heap 2 of 256 MiB, budget 173 MiB; ranked types [2, 1, 9]" in drawn.alt
    assert "no type 9" in svg_of(drawn) and "type 2 → 1." in svg_of(drawn)


def test_a_story_of_a_block_tells_what_fits_nowhere():
    drawn = heaps.draw_story(first_fit, "c")
    told = "3072 bytes free, the largest free range has 1024; z with 3072 bytes fits nowhere"
    assert drawn.alt == f"first fit: {told}; you: {told}"


def test_a_placement_is_drawn_with_what_is_too_much_and_lost():
    drawn = heaps.draw_placed(
        {"a": (10, 0, 20), "b": (99, 5, 9)},
        {"device": (20, 0), "window": (20, 0), "host": (90, 0)},
        {"b": "host"},
        "c",
    )
    assert "host: b, 99 of 85 MiB. 9 MiB over the bus a run" in drawn.alt
    assert "no heap: a" in svg_of(drawn)


def test_a_story_with_shared_bytes_counts_each_byte_once():
    drawn = heaps.draw_story(lambda free, size, alignment: (0, free), "c")
    assert "you: 5120 bytes free, the largest free range has 5120" in drawn.alt


def test_a_right_function_runs_in_the_runtime_and_wrong_ones_never_reach_the_driver():
    said = swapped_memory.run_on_ranges(first_fit, 0)
    assert said.endswith("gives the same logits: True")
    said = swapped_memory.run_on_ranges(lambda free, size, alignment: (0, free), 0)
    assert "offset 0 is right for" in said and "still holds bytes of the buffer" in said
    said = swapped_memory.run_on_ranges(lambda free, size, alignment: (1, free), 0)
    assert "offset 1 is wrong for" in said
