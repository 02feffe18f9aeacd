"""place_parts: parts of a Concat are made where they will lie, if memory does not grow by it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, value
from vklab import settings
from vklab.graph import onnx_import, passes, shapes
from vklab.plan import fusion, lowering

ROW = 16  # elements, of which the bytes are a multiple of what the device asks of an offset
INFO = fake_device({"minStorageBufferOffsetAlignment": 64})


def growing(steps=3, rows=1, width=ROW, more=(), axis=1):
    """Return a model like densenet: the product of all that is there is put behind it."""
    nodes, constants = [helper.make_node("MatMul", ["x", "w"], ["a0"])], {}
    constants["w"] = np.ones((width, width), np.float32)
    size = width
    for step in range(steps):
        weight = f"w{step}"
        constants[weight] = np.ones((size, width), np.float32)
        nodes += [
            helper.make_node("MatMul", [f"a{step}", weight], [f"b{step}"]),
            helper.make_node("Concat", [f"a{step}", f"b{step}"], [f"a{step + 1}"], axis=axis),
        ]
        size += width
    nodes.append(helper.make_node("ReduceSum", [f"a{steps}"], ["y"]))
    return model(nodes, [value("x", (rows, width))], ["y", *more], constants)


def fused(proto, off="", info=INFO):
    graph = passes.run(shapes.infer(onnx_import.load_graph(proto)))
    with settings.settings(DISABLE_PASSES=off):
        return fusion.fuse(graph, lowering.lower(graph), info)


def moves(lowered):
    return [d for d in lowered.dispatches if d.kernel in ("elementwise", "pointwise")]


def test_what_grows_lies_in_one_place_from_the_start():
    proto = growing()
    apart, placed = fused(proto, "place_parts"), fused(proto)
    assert len(moves(apart)) == 3 and not moves(placed)
    assert {placed.roots[f"a{n}"] for n in range(4)} == {"a3"}
    assert [placed.slices.get(f"a{n}", 0) for n in range(3)] == [0, 0, 0]
    assert apart.roots["a0"] == "a0" and not apart.slices


def test_parts_begin_where_the_device_can_bind_them():
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["c"]),
        helper.make_node("LpNormalization", ["x"], ["b"]),
        helper.make_node("Exp", ["b"], ["d"]),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=1),
        helper.make_node("ReduceSum", ["y"], ["z"]),
    ]
    for width, count in ((ROW, 0), (ROW - 1, 1)):
        proto = model(nodes, [value("x", (1, width))], ["c", "d", "z"])
        lowered = fused(proto, "join_siblings")
        left = [d for d in moves(lowered) if d.writes[0][1].name == "y"]
        assert len(left) == count, f"the second part starts at byte {4 * width}"
        if not count:
            assert (lowered.slices["b"], lowered.roots["b"]) == (ROW, "y")


@pytest.mark.parametrize("given", [{"rows": 2}, {"more": ("a0",)}, {"more": ("a1",)}])
def test_what_does_not_lie_together_or_must_not_is_copied(given):
    steps = 1
    apart, placed = (fused(growing(steps, **given), off) for off in ("place_parts", ""))
    assert len(moves(apart)) == len(moves(placed)) == 1


def test_rows_put_below_each_other_lie_together():
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Concat", ["a", "a"], ["y"], axis=0),
        helper.make_node("ReduceSum", ["y"], ["z"]),
    ]
    lowered = fused(model(nodes, [value("x", (3, ROW))], ["z"]))
    assert len(moves(lowered)) == 1, "one of the two is where it should be, the other is copied"


def test_memory_does_not_grow_for_it():
    """What is made long before the rest would keep the place of all of it, while others need it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "big"], ["b"]),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "small"], ["d"]),
        helper.make_node("Exp", ["a"], ["e"]),
        helper.make_node("Concat", ["a", "d"], ["y"], axis=1),
        helper.make_node("ReduceSum", ["y"], ["z"]),
    ]
    for wide, copies in ((64 * ROW, 1), (ROW // 4, 0)):
        constants = {
            "w": np.ones((ROW, ROW), np.float32),
            "big": np.ones((ROW, wide), np.float32),
            "small": np.ones((wide, 8 * ROW), np.float32),
        }
        lowered = fused(model(nodes, [value("x", (1, ROW))], ["z", "e"], constants))
        left = [d for d in moves(lowered) if d.writes[0][1].name == "y"]
        assert len(left) == copies
