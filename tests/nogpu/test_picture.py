"""How plans look: every dispatch, copy and value is drawn, within the page and large enough."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import helper

from support.fakes.fake_device import DISCRETE, UNIFIED, fake_device
from support.graphs.small_models import model, random_array, relu, value
from support.models.planned import NAMES, plan_of, proto_of
from vklab import settings
from vklab.plan.plan import Plan
from vklab.plan.report import picture

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plan: Plan) -> ElementTree.Element:
    """Return the picture of a plan, once all that it says fits where it stands."""
    root = ElementTree.fromstring(plan.picture("m.onnx"))
    assert root.get("role") == "img" and root.get("aria-label", "").startswith("m.onnx: plan for")
    width, height = map(int, root.get("viewBox", "").split()[2:])
    for item in root.iter():
        x, y = float(item.get("x", 0)), float(item.get("y", 0))
        assert 0 <= x <= width and 0 <= y <= height
        assert float(item.get("font-size", 11)) >= 8
        if item.tag == f"{SVG}rect":
            assert x + float(item.get("width", 0)) <= width + 1
            assert y + float(item.get("height", 0)) <= height + 1
    return root


def headings(root: ElementTree.Element) -> list[str]:
    """Return the bold words of a picture: one for each dispatch, copy, input and output."""
    return [t.text or "" for t in root.iter(f"{SVG}text") if t.get("font-weight")]


@pytest.mark.parametrize("types", [UNIFIED, DISCRETE], ids=["unified", "discrete"])
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shows_every_dispatch_copy_input_and_output(name, types):
    with settings.settings(DISABLE_DIRECT_IO=types is DISCRETE):
        plan = plan_of(proto_of(name), fake_device(memory_types=types))
    numbered = [f"{n} {d.kernel}" for n, d in enumerate(plan.dispatches)]
    ends = [*(info.name for info in plan.graph.inputs), *plan.graph.outputs]
    root = drawn(plan)
    assert sorted(headings(root)) == sorted([*numbered, *["copy"] * len(plan.copies), *ends])
    words = [t.text or "" for t in root.iter(f"{SVG}text")]
    assert any(word.startswith("lower bound") for word in words) and "dispatch" in words
    arrows = [p for p in root.iter(f"{SVG}path") if p.get("fill") == "none"]
    assert len(arrows) >= len(plan.dispatches)
    lives = [t.text or "" for t in root.iter(f"{SVG}title")]
    assert all(
        any(text.startswith(f"{life.name}: ") for text in lives) for life in plan.memory.lifetimes
    )


def test_a_picture_of_nothing_and_of_a_long_chain():
    assert headings(drawn(plan_of(relu((0, 3))))) == []
    names = ["x", *(f"v{i}" for i in range(40)), "y"]
    nodes = [helper.make_node("Softmax", [a], [b]) for a, b in itertools.pairwise(names)]
    root = drawn(plan_of(model(nodes, [value("x", (3, 5))], ["y"])))
    words = [t.text or "" for t in root.iter(f"{SVG}text")]
    # Ten columns to a row: the first ends with dispatch 8.
    assert len(headings(root)) == 43 and "to 9" in words and "from 8" in words


def test_lines_lead_from_who_writes_to_who_reads():
    """Through views and over in-place results; a concatenation has several writers."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("Concat", ["c", "b"], ["d"], axis=0),
        helper.make_node("Softmax", ["d"], ["y"]),
    ]
    plan = plan_of(model(nodes, [value("x", (2, 6))], ["y"], {"shape": np.int64([3, 4])}))
    steps = plan.chunks[0].steps
    sources, writers = picture.flows(steps, plan.memory.slots, plan.chunks[0].input_slots)
    by_name = [
        {
            n
            for n, s in enumerate(steps[:number])
            for _, i in s.writes
            if i.name in {info.name for _, info in step.reads}
        }
        for number, step in enumerate(steps)
    ]
    assert sources[0] == {-1}
    assert all(by_name[n] <= sources[n] for n in range(len(steps)))
    assert sources[-1] == by_name[-1] and len(sources[-1]) == 2 and writers["y"] == {len(steps) - 1}


def test_labels_say_what_is_fused():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    proto = model(nodes, [value("x", (3, 5))], ["y"], {"w": random_array((5, 5))})
    assert [row[1] for row in plan_of(proto).rows()] == ["matmul + relu, add"]
    with settings.settings(DISABLE_FUSION=True):
        labels = [row[1] for row in plan_of(proto).rows()]
    assert labels == ["matmul", "elementwise: relu", "elementwise: add"]
    names = ["x", *(f"v{i}" for i in range(8)), "s"]
    nodes = [helper.make_node("Add", [a, "k"], [b]) for a, b in itertools.pairwise(names)]
    nodes += [helper.make_node("ReduceMax", ["s"], ["t"]), helper.make_node("Exp", ["t"], ["y"])]
    proto = model(nodes, [value("x", (3, 5))], ["y"], {"k": random_array((5,))})
    plan = plan_of(proto)
    assert [row[1] for row in plan.rows()] == ["reduce of (add x9) + exp"]
    assert plan.summary()["generated_kernels"] == 1
