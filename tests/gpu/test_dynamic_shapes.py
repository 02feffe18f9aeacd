"""One session, many shapes, with upper bounds or without."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

import vklab
from support.graphs.attention_block import BOUNDS, SHAPES, block, feeds
from support.graphs.small_models import model, random_array, value
from vklab import settings
from vklab.errors import ModelError, PlanError
from vklab.runtime import open_devices
from vklab.types import DeviceInfo
from vklab.vulkan import pipeline

pytestmark = pytest.mark.full
NODE = helper.make_node


def held(opened):
    return opened.allocator.used_bytes, opened.allocator.reserved_bytes


# -------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("given", [BOUNDS, {"batch": 3}, None], ids=["bounds", "partial", "none"])
def test_every_shape_agrees_with_the_reference(device, given):
    with vklab.load(block(), device, upper_bounds=given) as session:
        for _ in range(2):  # the second time from what is kept
            for shape in SHAPES:
                comparison = session.check(feeds(*shape))
                assert comparison.passed, (shape, comparison)


@pytest.mark.parametrize("name", ["DISABLE_DIRECT_IO", "DISABLE_PUSH_DESCRIPTORS",
                                  "DISABLE_ALIASING", "DISABLE_REPLAY"])  # fmt: skip
def test_interleaved_shapes_leave_each_other_alone(device, name):
    with (
        settings.settings(**{name: True}),
        vklab.load(block(), device, upper_bounds=BOUNDS) as session,
    ):
        first = {}
        for number in range(3):
            for shape in SHAPES[::-1] if number % 2 else SHAPES:
                outputs = session.run(feeds(*shape))
                for key, array in outputs.items():
                    np.testing.assert_array_equal(first.setdefault((shape, key), array), array)
        assert session.check(feeds(2, 7)).passed


def test_the_kernels_of_gpus_share_memory_too(device, monkeypatch):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    with vklab.load(block(), device, upper_bounds=BOUNDS) as session:
        for shape in SHAPES:
            assert session.check(feeds(*shape)).passed


def test_shapes_without_elements_are_smaller_shapes(device_index):
    for given in (None, BOUNDS):
        with vklab.load(block(), device_index, upper_bounds=given) as session:
            session.run(feeds(2, 3))
            outputs = session.run(feeds(0, 3))
            assert [array.shape for array in outputs.values()] == [(0, 2, 3, 3), (0, 4)]
            assert session.run(feeds(2, 0))["weights"].shape == (2, 2, 0, 0)
            assert session.check(feeds(2, 3)).passed


def test_dimensions_without_a_name_go_by_input_and_axis(device_index):
    proto = model([NODE("Relu", ["x"], ["y"])], [value("x", (None, 4))], ["y"])
    with vklab.load(proto, device_index, upper_bounds={"x.0": 5}) as session:
        assert session.plan.chunks[0].graph.inputs[0].shape == (5, 4)
        assert session.check({"x": random_array((3, 4))}).passed
        with pytest.raises(ModelError, match="'x.0' = 6, above its upper bound 5"):
            session.run(random_array((6, 4)))


# -------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("is_cpu", [True, False], ids=["cpu", "gpu"])
def test_new_shapes_need_no_new_kernels(device_index, monkeypatch, is_cpu):
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: is_cpu))
    made = []
    first = pipeline.ComputePipeline.__init__

    def counted(self, *arguments):
        made.append(arguments[-1])
        first(self, *arguments)

    # One shape of each kind: products of 1, 2, 4, 8 and more rows, short and long softmax rows.
    kinds = [(3, 13), (4, 36), (1, 17), (2, 1), (1, 1), (2, 2), (3, 5)]
    others = [(2, 28), (4, 40), (3, 14), (2, 29), (4, 7), (1, 29), (3, 1), (4, 5), (2, 10)]
    if is_cpu:  # products with even strides load two floats at once
        kinds += [(2, 24), (3, 12), (2, 31), (4, 3), (2, 6)]
    with vklab.load(block(), device_index, upper_bounds={"batch": 4, "length": 40}) as session:
        for sizes in kinds:
            session.run(feeds(*sizes))
        monkeypatch.setattr(pipeline.ComputePipeline, "__init__", counted)
        for sizes in others:
            session.run(feeds(*sizes))
            assert not made, (sizes, made)


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bacth": 2}, "unknown dimension; the open ones are batch, length"),
        ({"x.2": 6}, "x.2=6: the model fixes this dimension at 6"),
        ({"batch": 0}, "an integer of at least 1"),
        ({"x.0": 2, "mask.0": 3}, "contradict each other"),
    ],
)
def test_bad_bounds_do_not_load(device_index, given, says):
    opened = open_devices.open_device(device_index)
    before = held(opened)
    with pytest.raises(ModelError, match=says):
        vklab.load(block(), device_index, upper_bounds=given)
    assert held(opened) == before


def test_bounds_at_which_the_model_cannot_run(device_index):
    given = {"batch": 3, "length": 9, "batch_mask": 2, "length_mask": 9}
    with pytest.raises(
        ModelError,
        match=r"at its upper bounds \(batch=3, length=9, batch_mask=2, "
        r"length_mask=9\) the model cannot run: node 'Add_10'|'masked'",
    ):
        vklab.load(block("_mask"), device_index, upper_bounds=given)
    given["batch_mask"] = 3
    with vklab.load(block("_mask"), device_index, upper_bounds=given) as session:
        assert session.check(feeds(2, 5)).passed


def test_bounds_that_no_device_can_hold(device_index):
    opened = open_devices.open_device(device_index)
    before = held(opened)
    with pytest.raises((ModelError, PlanError), match="at its upper bounds .*length=1000000"):
        vklab.load(block(), device_index, upper_bounds={"batch": 1, "length": 1_000_000})
    assert held(opened) == before


def test_a_shape_above_its_bound_changes_nothing(device_index):
    with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
        before = session.reserved_bytes
        for call in (session.run, session.time, session.profile):
            with pytest.raises(ModelError, match="'length' = 10, above its upper bound 9"):
                call(feeds(3, 10))
        assert session.reserved_bytes == before
        assert session.check(feeds(3, 9)).passed


# ------------------------------------------------------------------------------------ host parts


def test_parts_behind_the_host_share_the_memory_too(device_index):
    nodes = [
        NODE("MatMul", ["x", "w"], ["a"]),
        NODE("Neg", ["a"], ["b"]),
        NODE("Unique", ["b"], ["c"], sorted=1),
        NODE("Mul", ["c", "c"], ["y"]),
    ]
    proto = model(nodes, [value("x", ("n", 4))], ["y"], {"w": random_array((4, 300))})
    opened = open_devices.open_device(device_index)
    with (
        settings.settings(HOST="Unique"),
        vklab.load(proto, device_index, upper_bounds={"n": 8}) as session,
    ):
        session.run(random_array((8, 4)))
        before = held(opened)
        for rows in (1, 5, 8, 3):
            assert session.check({"x": random_array((rows, 4), rows)}).passed
        assert held(opened) == before
        assert session.host_reasons


def test_sizes_that_values_decide_are_planned_on_the_first_use(device_index):
    inputs = [value("x", ("n", 1)), value("dims", (2,), TensorProto.INT64)]
    proto = model([NODE("Expand", ["x", "dims"], ["y"])], inputs, ["y"])
    with vklab.load(proto, device_index, upper_bounds={"n": 4}) as session:
        for rows, columns in ((4, 3), (2, 5), (1, 1)):
            fed = {"x": random_array((rows, 1)), "dims": np.int64([1, columns])}
            assert session.check(fed).passed


# ---------------------------------------------------------------------------------------- threads


def test_threads_with_different_shapes(device_index):
    expected, failures = {}, []
    with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
        for shape in SHAPES:
            expected[shape] = session.run(feeds(*shape))

        def work(offset):
            for number in range(12):
                shape = SHAPES[(offset + 5 * number) % len(SHAPES)]
                outputs = session.run(feeds(*shape))
                failures.extend(
                    key
                    for key, array in outputs.items()
                    if not np.array_equal(array, expected[shape][key])
                )

        with settings.settings(KEPT_PLANS=0):
            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not failures
