"""Shared pictures of the course: what they say of a traced kernel, of objects, time and memory."""

from __future__ import annotations

import numpy as np
import pytest

from support.course.figures import svg_of
from vklab.shader import source
from vklab_labs.lab_01 import backends, boards
from vklab_labs.lab_04 import accesses, steps
from vklab_labs.lab_04.trace import READ, trace
from vklab_labs.shared import diagram, lanes, listings, roofline

pytestmark = pytest.mark.full
ADD = source.find("labs/vector_add.slang").read_text("utf-8")
UNGUARDED = ADD.replace("if (i < params.count)", "if (params.count > 0)")
EVERYTHING = ADD.replace(
    "if (i < params.count) y[i] = a[i] + b[i]",
    "for (i = 0; i < params.count; ++i) y[i] = a[i] + b[i]",
)


def traced(text, count=100, groups=(2,)):
    x = np.arange(count, dtype=np.float32)
    return trace(text, {"a": x, "b": x, "y": np.zeros_like(x)}, groups, {"count": count})


def test_a_trace_counts_and_its_map_says_so():
    seen = traced(ADD)
    assert str(seen).splitlines() == [
        "128 invocations: 100 touch something, 28 are idle",
        "a: 100 reads, 0 writes, 0 outside",
        "b: 100 reads, 0 writes, 0 outside",
        "y: 0 reads, 100 writes, 0 outside",
    ]
    assert seen.of("a", READ).tolist() == [[i, 0, i] for i in range(100)]
    drawn = accesses.draw_invocation_map(seen)
    assert drawn.alt == (
        "128 invocations: 100 write, 28 do not. y has 100 elements: 100 are "
        "written. Writes outside: 0."
    )
    assert "Orange" not in drawn.caption and "Black" not in drawn.caption


def test_writes_outside_and_many_lines_are_told():
    drawn = accesses.draw_invocation_map(traced(UNGUARDED))
    assert "Writes outside: 28." in drawn.alt and "Orange: outside" in drawn.caption
    drawn = accesses.draw_invocation_map(traced(EVERYTHING, 40, (1,)))
    assert "40 of them more than once" in drawn.alt and "Black: written more" in drawn.caption
    assert "only those of the first invocation" in drawn.caption


def test_a_kernel_without_writes_and_a_stub():
    nothing = ADD.replace("y[i] = a[i] + b[i]", "{ if (a[i] + b[i] < -1.0) y[i] = 1.0; }")
    assert "0 are written" in accesses.draw_invocation_map(traced(nothing)).alt
    with pytest.raises(NotImplementedError, match="exercise 1"):
        traced(ADD.replace("uint i", "#error Lab 04, exercise 1: replace\n uint i"))


def test_a_matrix_in_the_colours_of_its_workgroups_and_its_counts():
    seen = traced(ADD, 96)
    assert "96 are written" in accesses.draw_owners(seen, "y", (8, 12)).alt
    drawn = accesses.draw_access_counts(seen, "a", (8, 12), 9)
    assert drawn.caption.endswith("All 96 elements together: 96 reads.")
    colours = {tuple(accesses._group_colour(x / 6, y / 4)) for x in range(7) for y in range(5)}
    assert len(colours) == 35


class Calls(list):
    def destroy(self, handle, _):
        self.append(handle)


def test_a_second_stack_destroys_the_objects_of_the_first():
    gone = Calls()
    stack = steps.ObjectStack()
    stack.step(1)
    stack.keep("instance", "i", gone.destroy)
    stack.keep("queue", "q")
    stack.step(2)
    stack.keep("SPIR-V", "s", gone.destroy)
    stack.step(2)
    assert gone == ["s"] and "SPIR-V" not in repr(stack.picture())
    steps.ObjectStack()
    assert gone == ["s", "i"] and stack.end() == 0


def test_a_step_before_its_turn_is_one_line():
    with pytest.raises(steps.TooEarly) as raised:
        steps.ObjectStack().step(3)
    assert raised.value._render_traceback_() == [
        "step 3 waits for step 2, whose cell has not run to its end yet"
    ]


def test_time_memory_and_graphs_are_drawn_with_their_words():
    bars = {"host": [("record", 0, 1, "blue")], "device": [("run", 1, 2, "green")]}
    drawn = svg_of(lanes.draw_timeline(bars, [("host", 1, "device", 1)], alt="a", caption="c"))
    assert all(words in drawn for words in ("host", "device", "record", "run", "time"))
    drawn = svg_of(
        lanes.draw_arena([("x", 64, "blue"), ("y", 4096, "green")], alt="a", caption="c")
    )
    assert all(f">{at}<" in drawn for at in ("0", "64", "4160 bytes"))
    graph = lanes.draw_graph(
        [{"a": "blue", "b": "blue"}, {"c": "green"}],
        [("a", "c", "one"), ("b", "c", "two")],
        alt="a",
        caption="c",
    )
    drawn = svg_of(graph)
    assert drawn.count("marker-end") == 2 and "two" in drawn


def test_listings_are_escaped_and_marked():
    drawn = listings.draw_listings({"C": "if (a < b)\n  x();"}, ["x()"], "c").html
    assert "a &lt; b" in drawn and drawn.count("<span") == 1


def test_rooflines_say_peaks_kinds_and_points_and_refuse_nonsense():
    roofs = [roofline.Roof("A", 20, 500), roofline.Roof("B", 40, 500, "matrix", "red")]
    drawn = roofline.draw_rooflines(roofs, "c", [("mine", 3, 1.5)])
    assert drawn.alt == (
        "Rooflines: A 20 TFLOP/s (vector) and 500 GB/s; B 40 TFLOP/s (matrix) "
        "and 500 GB/s; point mine: 1.5 TFLOP/s"
    )
    svg = svg_of(drawn)
    assert svg.count("<circle") == 2 and 'stroke-dasharray="7 4"' in svg
    with pytest.raises(ValueError, match="A: expected a positive peak"):
        roofline.Roof("A", 0, 500)


def test_boards_show_what_is_too_much_and_what_has_no_place():
    shop, models = (
        {"X": (100, 8, 50)},
        {"a": (6, 10, ("X",)), "b": (5, 10, ("X",)), "c": (1, 1, ("Y",)), "d": (1, 1, ("X",))},
    )
    drawn = boards.draw_boards(shop, models, [("X", ["a", "b"]), ("X", ["c"])], "c")
    assert drawn.alt == "X: a, b; X: c: 200 W" and "without a board: d" in svg_of(drawn)
    assert svg_of(drawn).count(diagram.COLOURS["red"]) == 2 * (2 + 2)


def test_the_matrix_of_backends_marks_what_an_answer_admits():
    drawn = backends.draw_matrix(backends.BACKENDS, "c", {"Vulkan"})
    assert "→ Vulkan" in svg_of(drawn) and "Apple/macOS (translated)" in drawn.alt
    assert drawn.alt.count("chosen") == 1 and "drivers" not in backends.draw_stack().alt
