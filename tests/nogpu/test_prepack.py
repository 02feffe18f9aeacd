"""Layouts of weights: what they hold, who asks for them, and what they cost in memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from onnx import helper

from support.fakes.fake_device import fake_device
from support.graphs.small_models import model, random_array, value
from support.models.planned import plan_graph
from vklab import settings
from vklab.base.names import internal
from vklab.graph import constant_cache, onnx_import, passes, shapes
from vklab.plan.options import Facts
from vklab.plan.plan import Plan
from vklab.plan.tuning import prepack
from vklab.plan.tuning.products import row_products, tiled
from vklab.types import TensorInfo

GPU, CPU = fake_device(), fake_device(type="cpu")


def weight(array: np.ndarray) -> TensorInfo:
    return TensorInfo("w", str(array.dtype), array.shape, array)


def filled(array: np.ndarray, *layout) -> np.ndarray:
    given = weight(array)
    asked = prepack.turned(given, *layout)
    made = prepack.fill(asked, {"w": given})
    assert made.name == asked.name and made.dims == asked.dims == made.constant.shape
    assert asked.constant is None
    return made.constant


def plan_of(proto, info, sizes=None, resident=()):
    return planned(onnx_import.load_graph(proto), info, sizes or {}, resident)


def planned(graph, info, sizes, resident=()) -> Plan:
    shaped = shapes.infer(shapes.bind(graph, sizes))
    return plan_graph(passes.run(shaped), info, Facts(resident=(frozenset(resident),)))


def product(m, k, n, dtype=np.float32):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", (m, k), kind)],
        ["y"],
        {"w": random_array((k, n)).astype(dtype)},
    )


def convolution(channels, filters, size, kernel=3, group=1):
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=group, pads=[kernel // 2] * 4)
    return model(
        [node],
        [value("x", (1, channels, size, size))],
        ["y"],
        {"w": random_array((filters, channels // group, kernel, kernel))},
    )


def reads(plan) -> list[str]:
    return [info.name for dispatch in plan.dispatches for _, info in dispatch.reads]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_every_weight_is_where_the_layout_says(dtype):
    groups, rows, depth, taps, chunk = 2, 5, 7, 6, 4
    given = np.arange(groups * rows * depth * taps).reshape(groups * rows, depth, 2, 3)
    given = given.astype(dtype)
    made = filled(given, (groups, rows, depth, taps), chunk, 4)
    assert made.shape == (2, 2, 6, 4, 8) and made.dtype == dtype
    flat = made.reshape(groups, -1, taps, chunk, 8)
    for g, r, d, t in np.ndindex(groups, rows, depth, taps):
        expected = given.reshape(groups, rows, depth, taps)[g, r, d, t]
        assert flat[g, d // chunk, t, d % chunk, r] == expected
    assert np.count_nonzero(made) == np.count_nonzero(given)


def test_without_padding_the_host_holds_no_second_copy():
    given = random_array((64, 100))
    made = filled(given, (1, 64, 100, 1))
    np.testing.assert_array_equal(made.reshape(100, 64), given.T)
    assert np.shares_memory(made, given)
    assert (
        np.shares_memory(
            filled(random_array((8, 32, 3, 3)), (1, 8, 32, 9), 16, 4), random_array((8, 32, 3, 3))
        )
        is False
    )


def test_a_layout_is_made_once_and_goes_with_its_weight():
    given = random_array((64, 100))
    for layout in (((1, 64, 100, 1),), ((1, 64, 100, 1), 32, 4)):
        one, other = filled(given, *layout), filled(given, *layout)
        assert one is other
    gone = weakref.ref(given)
    view, copy = filled(given, (1, 64, 100, 1)), weakref.ref(one)
    del one, other, given
    gc.collect()
    assert gone() is not None and view.base is gone()  # as long as somebody reads it
    del view
    gc.collect()
    assert gone() is None and copy() is None


def test_views_are_not_kept_by_what_remembers_them():
    source = random_array((3, 4))
    first = constant_cache.derive("turn", np.transpose, source)
    assert constant_cache.derive("turn", np.transpose, source) is first
    gone = weakref.ref(source)
    del source, first
    gc.collect()
    assert gone() is None


def test_what_is_not_known_or_not_wanted_is_left_as_it_is():
    given = weight(random_array((64, 100)))
    unknown = TensorInfo("w", "float32", (64, 100))
    assert prepack.turned(unknown, (1, 64, 100, 1)) is None
    assert prepack.turned(given, (1, 64, 50, 1)) is None
    with settings.settings(DISABLE_PREPACK=True):
        assert prepack.turned(given, (1, 64, 100, 1)) is None
    assert prepack.fill(given, {"w": given}) is None
    assert prepack.fill(TensorInfo(internal("w", "turned"), "float32", (1,)), {"w": given}) is None


@pytest.mark.parametrize(("info", "sizes", "turns"), [
    (CPU, (7, 64, 512), False), (CPU, (8, 64, 512), True), (CPU, (100, 64, 512), True),
    (CPU, (8, 63, 512), False), (CPU, (8, 64, 511), False), (GPU, (1, 64, 511), False),
    (GPU, (1, 64, 512), True), (GPU, (2, 64, 512), False), (GPU, (16, 64, 512), False),
    (GPU, (1, 63, 2048), False), (GPU, (1, 64, 32768), False), (GPU, (1, 64, 32766), True),
    (GPU, (1, 20000, 2), True),
])  # fmt: skip
def test_products_whose_weight_is_turned(info, sizes, turns):
    plan = plan_of(product(*sizes), info)
    assert ("w" not in reads(plan)) == turns
    assert plan.memory.weights_bytes == 4 * sizes[1] * sizes[2]
    first = plan.dispatches[0]
    push = first.push_values
    if first.kernel != "conv_last_tiled":  # it reads weights as they are only
        assert (push["b_row"], push["b_column"]) == ((1, sizes[1]) if turns else (sizes[2], 1))
    if first.kernel == "matvec":
        fours = "2" if turns else str(int(sizes[2] == 32768))
        assert first.define_values["FOURS"] == fours
        columns = 1 if sizes[2] <= row_products.FEW_COLUMNS else 4
        assert first.constant_values["COLUMNS"] == {"0": 32, "1": 16, "2": columns}[fours]
    with settings.settings(DISABLE_PREPACK=True):
        assert "w" in reads(plan_of(product(*sizes), info))


def test_a_weight_is_read_as_it_lies():
    """A plan is one of its arguments alone, and of what the device holds for other shapes."""
    many, one = product(8, 64, 512), product(1, 64, 512)
    (packed,) = (name for name in reads(plan_of(many, CPU)) if name != "x")
    assert "w" in reads(plan_of(one, CPU)) and packed != "w"
    for proto in (many, one):
        assert packed in reads(plan_of(proto, CPU, resident={packed}))
        assert "w" in reads(plan_of(proto, CPU, resident={"w"}))
        assert reads(plan_of(proto, CPU, resident={"v"})) == reads(plan_of(proto, CPU))


@pytest.mark.parametrize(("dtype", "fours"), [(np.float32, "2"), (np.float16, "1")])
def test_narrow_weights_are_read_by_fours_sooner(dtype, fours):
    wide = fake_device(features=frozenset({"shaderFloat16", "storageBuffer16BitAccess"}))
    plan = plan_of(product(1, 68, 4096, dtype), wide)
    assert plan.dispatches[0].define_values["FOURS"] == fours


def test_convolutions_are_packed_unless_that_is_mostly_padding():
    for channels, kernel in (
        (64, "conv_packed"),
        (37, "conv_tiled"),
        (39, "conv_packed"),
        (52, "conv_packed"),
    ):
        plan = plan_of(convolution(channels, 20, 5), GPU)
        (chosen,) = [d for d in plan.dispatches if d.kernel in ("conv_packed", "conv_tiled")]
        assert chosen.kernel == kernel
        assert int(chosen.define_values["TILE_K"]) % prepack.CHUNK == 0
        packed = kernel == "conv_packed"
        assert plan.memory.weights_bytes == (
            4 * 20 * 9 * (-(-channels // 16) * 16 if packed else channels)
        )
    assert "w" in reads(plan_of(convolution(64, 7, 5), CPU))


def test_padding_never_makes_a_weight_too_large_to_bind(monkeypatch):
    for least, kernel in ((4 * 20 * 9 * 48, "conv_packed"), (4 * 20 * 9 * 48 - 1, "conv_tiled")):
        monkeypatch.setattr(tiled, "LEAST_RANGE_BYTES", least)
        assert plan_of(convolution(47, 20, 5), GPU).dispatches[0].kernel == kernel
    assert plan_of(convolution(64, 20, 5), GPU).dispatches[0].kernel == "conv_packed"


def test_large_tiles_are_read_by_fours():
    large = plan_of(convolution(64, 512, 64), GPU).dispatches[0]
    assert large.constant_values["ROWS"] % 4 == 0 and large.kernel == "conv_packed"


def test_parts_of_a_sum_are_whole_chunks():
    plan = plan_of(convolution(500, 20, 5), GPU)
    first, second = plan.dispatches
    assert second.kernel == "sum_splits" and first.kernel == "conv_packed"
    push = first.push_values
    assert push["part"] % prepack.CHUNK == 0
    splits = second.push_values["splits"]
    assert (splits - 1) * push["part"] < 500 <= splits * push["part"]
    assert first.workgroups[2] == splits


def test_a_weight_that_somebody_reads_as_it_is_lies_there_once():
    shape = 64, 600
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["w"], ["v"]),
        helper.make_node("Gather", ["w", "i"], ["z"]),
    ]
    inputs = [value("x", (9, shape[0])), value("i", (2,), 7)]
    proto = model(nodes, inputs, ["y", "v", "z"], {"w": random_array(shape)})
    plan = plan_of(proto, CPU)
    assert sum(name.startswith(internal("w", "turned")) for name in reads(plan)) == 0
    for users in (1, 3):
        nodes = [helper.make_node("MatMul", ["x", "w"], [f"y{i}"]) for i in range(users)]
        proto = model(
            nodes, inputs[:1], [f"y{i}" for i in range(users)], {"w": random_array(shape)}
        )
        plan = plan_of(proto, CPU)
        assert "w" not in reads(plan) and plan.memory.weights_bytes == 4 * 600 * 64


@pytest.mark.parametrize(("counts", "turns"), [((1, 9, 40), False), ((9, 1, 40), True)])
def test_shapes_of_one_session_read_one_layout_of_a_weight(counts, turns):
    graph = onnx_import.load_graph(product("n", 64, 600))
    found: list[Plan] = []
    for n in counts:
        resident = {name for plan in found for name in plan.chunks[0].constants}
        found.append(planned(graph, CPU, {"n": n}, resident))
    assert {"w" not in reads(plan) for plan in found} == {turns}
    arrays = {
        id(plan.chunks[0].constants[name].constant)
        for plan in found
        for name in reads(plan)
        if name.startswith("w")
    }
    assert len(arrays) == 1


def test_tiles_of_all_sizes_read_one_layout():
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    proto = model(
        [node], [value("x", (1, 64, "s", "s"))], ["y"], {"w": random_array((256, 64, 3, 3))}
    )
    graph = onnx_import.load_graph(proto)
    found = [planned(graph, GPU, {"s": size}).dispatches[0] for size in (5, 20, 64, 150)]
    assert len({d.constant_values["TILE_M"] for d in found}) > 1
    assert {d.kernel for d in found} == {"conv_packed"}
    assert len({dict(d.reads)["w_buffer"].name for d in found}) == 1
