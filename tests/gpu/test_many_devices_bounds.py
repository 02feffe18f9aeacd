"""Upper bounds on several devices: the memory of all stages is made once, for all shapes."""

from __future__ import annotations

import pytest

from support.runs.two_drivers import both

START = """
import numpy as np, vklab
from support.runs.split_models import *
from vklab import settings
from vklab.runtime import open_devices
from vklab.vulkan import api
def rows_of(fed, rows):
    return {name: np.resize(array, (rows, 8)) for name, array in fed.items()}
def used():
    return [open_devices.open_device(index).allocator.used_bytes for index in BOTH], kinds()
def kinds():
    return api.live_handles().get("VkDeviceMemory"), api.live_handles().get("VkBuffer")
source, fed = diamond()
want = {n: outputs_of(source, rows_of(fed, n)) for n in (1, 2, 3, 5, 7, 8, 64)}
"""


@pytest.mark.full
def test_memory_does_not_grow_up_to_the_bounds():
    both(
        START
        + """
with nothing_left(), vklab.load(source, devices=BOTH, place=DIAMOND, upper_bounds={"n": 64}) as s:
    s.run(rows_of(fed, 64))
    before, reserved = used(), s.reserved_bytes
    assert reserved > 0
    for rows in (3, 64, 1, 2, 5, 3, 7, 64, 8, 1):
        assert differs(want[rows], s.run(rows_of(fed, rows))) < 1e-6, rows
        assert used() == before and s.reserved_bytes == reserved, (rows, used(), before)
    paths = [move["path"] for move in s.plan.summary()["moves"]]
    assert "same memory" in paths and "shared host memory" in paths
    devices = s.plan.placement.devices
    for found in s.map([rows_of(fed, n) for n in (1, 5, 64, 2) * 3], in_flight=3):
        rows = len(found["f"])
        assert differs(want[rows], found) < 1e-6
    frames = used()
    for found in s.map([rows_of(fed, n) for n in (7, 3, 8, 1) * 3], in_flight=3):
        assert differs(want[len(found["f"])], found) < 1e-6
    assert used() == frames and s.plan.placement.devices == devices
"""
    )


def test_what_has_no_room_there_and_what_is_dropped_has_memory_of_its_own():
    both(
        START
        + """
from vklab.runtime.many.transfer_memory import TransferMemory
with nothing_left():
    real, lent = TransferMemory.holds, []
    TransferMemory.holds = (
        lambda memory, plan: lent.append(real(memory, plan)) or len(lent) % 2 == 1)
    with vklab.load(source, devices=BOTH, place=DIAMOND, upper_bounds={"n": 64}) as s:
        for rows in (3, 64, 1, 2, 3, 5, 64):
            assert differs(want[rows], s.run(rows_of(fed, rows))) < 1e-6
    assert all(lent)
    TransferMemory.holds = real
    with settings.settings(KEPT_PLANS=1):
        with vklab.load(source, devices=BOTH, place=DIAMOND, upper_bounds={"n": 64}) as s:
            for rows in (3, 64, 1, 2, 3):
                assert differs(want[rows], s.run(rows_of(fed, rows))) < 1e-6
    with vklab.load(source, devices=BOTH, place=DIAMOND) as s:
        s.run(rows_of(fed, 3))
        assert s.reserved_bytes == 0
"""
    )


def test_other_shapes_are_placed_as_the_largest_one():
    both(
        START
        + """
nodes = [helper.make_node("Softmax", [f"n{k - 1}" if k else "x"], [f"n{k}"], f"n{k}")
         for k in range(6)]
source = model(nodes, [value("x", ("n", 8))], ["n5"])
x = {rows: random_array((rows, 8), rows) for rows in (3, 64)}
one = {rows: outputs_of(source, {"x": array}) for rows, array in x.items()}
options = {"devices": BOTH, "policy": "greedy", "upper_bounds": {"n": 64},
           "memory_caps": {LAVAPIPE: 12 * 64 * 8, SWIFTSHADER: 1 << 20}}
with nothing_left(), settings.settings(DISABLE_FUSION=True), vklab.load(source, **options) as s:
    sizes = [len(chunk.graph.nodes) for chunk in s.plan.chunks]
    assert len(sizes) == 2, s.plan  # all six would fit on the first device for three rows
    devices = s.plan.placement.devices
    for rows in (64, 3, 64):
        assert differs(one[rows], s.run(x[rows])) < 1e-6
        before = used() if rows == 64 else before
        assert used() == before and s.plan.placement.devices == devices
        assert [len(chunk.graph.nodes) for chunk in s.plan.chunks] == sizes, s.plan
"""
    )
