"""slice_gathers, read_strided and join_attention: which copies and dispatches of attention go."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.graphs.pass_graphs import kinds
from support.graphs.small_models import model, value
from vklab import settings
from vklab.graph import onnx_import, passes, shapes
from vklab.graph.passes import slice_gathers
from vklab.plan import fusion, lowering

INFO = fake_device({"minStorageBufferOffsetAlignment": 64, "maxComputeSharedMemorySize": 49152})
LENGTH, HEADS, SIZE = 32, 2, 16


@pytest.mark.parametrize(("indices", "axis", "expected"), [
    (1, 0, ["Slice", "Reshape"]), (-1, 1, ["Slice", "Reshape"]), ((1, 2), 1, ["Slice"]),
    ((-2, -1), 2, ["Slice"]), ((0,), 2, ["Slice"]),
    ((1, 0), 0, ["Gather"]), ((0, 2), 1, ["Gather"]), ((1, 1), 0, ["Gather"]),
    ((4, -5), 1, ["Gather"]),  # after the last comes the first
])  # fmt: skip
def test_a_gather_of_consecutive_indices_is_a_slice(indices, axis, expected):
    proto = model(
        [helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)],
        [value("x", (2, 5, 8))],
        ["y"],
        {"i": np.array(indices)},
    )
    graph = shapes.infer(onnx_import.load_graph(proto))
    changed = slice_gathers.slice_gathers(graph)
    assert kinds(changed) == expected
    assert shapes.infer(changed).infos["y"].shape == graph.infos["y"].shape
    assert slice_gathers.slice_gathers(changed) is changed


def joint(batch=1, length=LENGTH, mask=False, more=()):
    """Return attention as exporters write it: Q, K and V are parts of one product."""
    width = HEADS * SIZE
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Reshape", ["p", "parts"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
    ]
    for number, name in enumerate("qkv"):
        nodes.append(helper.make_node("Gather", ["t", f"i{number}"], [name], axis=0))
    inputs = ["q", "k", "v", *(["m"] if mask else [])]
    nodes += [
        helper.make_node("Attention", inputs, ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["b", "flat"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    known = {
        "w": rng.standard_normal((width, 3 * width)).astype(np.float32) / 4,
        "parts": np.array([batch, length, 3, HEADS, SIZE]),
        "flat": np.array([batch, length, width]),
        **{f"i{n}": np.array(n) for n in range(3)},
    }
    inputs = [value("x", (batch, length, width))]
    if mask:
        inputs.append(value("m", (batch, 1, length, length)))
    return model(nodes, inputs, ["y", *more], known, opset=23)


def kernels(proto, off="", info=INFO):
    graph = passes.run(shapes.infer(onnx_import.load_graph(proto)))
    with settings.settings(DISABLE_PASSES=off):
        lowered = fusion.fuse(graph, lowering.lower(graph), info)
    return [d.kernel for d in lowered.dispatches], lowered


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("mask", [False, True])
def test_attention_of_one_product_is_two_dispatches(batch, mask):
    names, lowered = kernels(joint(batch, mask=mask))
    assert names == ["matmul", "attention"]
    q, k, v = (dict(lowered.dispatches[1].reads)[f"{name}_buffer"] for name in "qkv")
    assert len({lowered.roots[each.name] for each in (q, k, v)}) == 1, "one product holds all"
    starts = [lowered.slices.get(each.name, 0) for each in (q, k, v)]
    assert starts == [0, batch * LENGTH * HEADS * SIZE, 2 * batch * LENGTH * HEADS * SIZE]


@pytest.mark.parametrize(("off", "expected"), [
    ("join_attention", ["matmul", "matmul", "attention_weights", "matmul"]),
    ("read_strided, join_attention",
     ["matmul", "pointwise", "matmul", "attention_weights", "matmul"]),  # one copy for all three
])  # fmt: skip
def test_each_step_is_left_out_by_its_name(off, expected):
    assert kernels(joint(), off)[0] == expected


@pytest.mark.parametrize(
    "info",
    [
        fake_device({"maxComputeSharedMemorySize": 1024}),
        fake_device(type="cpu"),
    ],
    ids=["little shared memory", "CPU"],
)
def test_a_device_without_room_keeps_three_dispatches(info):
    assert "attention_weights" in kernels(joint(), info=info)[0]


def test_few_queries_and_outputs_in_between_keep_three_dispatches():
    assert "attention_weights" in kernels(joint(length=8))[0]
    names, _ = kernels(joint(more=["q"]))
    assert names.count("attention") == 1, "an output is read where it is"


def test_an_offset_that_the_device_cannot_bind_is_copied():
    info = fake_device(
        {"minStorageBufferOffsetAlignment": 1 << 16, "maxComputeSharedMemorySize": 49152}
    )
    names, lowered = kernels(joint(), info=info)
    assert not lowered.slices and len(names) > 2
