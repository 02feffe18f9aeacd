"""Memory under upper bounds: reserved once, shared by all shapes, given back at the end."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pytest

import vklab
from support.graphs.attention_block import BOUNDS, SHAPES, block, feeds
from vklab import settings
from vklab.errors import ModelError, TimeoutError
from vklab.plan import memory as memory_plan
from vklab.runtime import executor, open_devices
from vklab.vulkan import api, memory
from vklab.vulkan.command import Submission
from vklab.vulkan.event import EventFence, EventSubmission
from vklab.vulkan.sync import Fence


@pytest.fixture
def allocated(monkeypatch):
    """Count the buffers and blocks of memory that are made."""
    made = Counter()
    for name in ("Buffer", "Block"):
        first = getattr(memory, name).__init__

        def counted(self, *arguments, first=first, name=name):
            made[name] += 1
            first(self, *arguments)

        monkeypatch.setattr(getattr(memory, name), "__init__", counted)
    return made


def held(opened):
    return opened.allocator.used_bytes, opened.allocator.reserved_bytes


def test_no_shape_allocates_after_loading(device_index, allocated):
    opened = open_devices.open_device(device_index)
    with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
        before, made, reserved = held(opened), dict(allocated), session.reserved_bytes
        assert reserved > 0 and session.plan.chunks[0].graph.inputs[0].shape == (3, 9, 6)
        for shape in SHAPES * 2:
            session.run(feeds(*shape))
            assert (held(opened), dict(allocated)) == (before, made), shape
        assert session.reserved_bytes == reserved
        session.time(feeds(2, 2), repeats=2)
        session.profile(feeds(1, 2), repeats=2)
        assert held(opened) == before


def test_without_bounds_memory_goes_with_the_plans(device_index, allocated):
    opened = open_devices.open_device(device_index)
    with vklab.load(block(), device_index) as session:
        assert session.reserved_bytes == 0
        session.run(feeds(1, 1))
        made = allocated["Buffer"]
        session.run(feeds(1, 2))
        assert allocated["Buffer"] > made
        with settings.settings(KEPT_PLANS=2):
            session.run(feeds(3, 9))
            session.run(feeds(3, 9, 1))
            session.run(feeds(3, 8))
            full = held(opened)[0]
            session.run(feeds(1, 1))
            session.run(feeds(1, 2))
        assert len(session.roots[0].entries) == 2 and held(opened)[0] < full


def test_a_shape_that_needs_more_makes_the_memory_grow_with_a_reason(
    device_index, capfd, monkeypatch
):
    with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
        expected = session.run(feeds(2, 7))
        reserved = session.reserved_bytes
        assign = memory_plan.assign_offsets
        with monkeypatch.context() as patched, settings.settings(DEBUG=1):
            # as if the packing of this shape were worse
            patched.setattr(memory_plan, "assign_offsets", lambda lives, _: assign(lives, False))
            session.run(feeds(3, 8))
        assert session.reserved_bytes > reserved
        assert "reserved memory grows: activations from" in capfd.readouterr().err
        assert "x: float32[3,8,6]" in session.states[0].pool.growths[0]
        for key, array in session.run(feeds(2, 7)).items():  # recorded anew
            np.testing.assert_array_equal(array, expected[key])
        assert all(session.check(feeds(*shape)).passed for shape in SHAPES[::5])


def test_dimensions_without_a_bound_grow_the_memory_to_the_largest_shape(device_index):
    opened = open_devices.open_device(device_index)
    with vklab.load(block(), device_index, upper_bounds={"batch": 3}) as session:
        with pytest.raises(ModelError, match="first run tells the sizes"):
            session.plan  # noqa: B018
        session.run(feeds(3, 40))
        before = held(opened)
        for length in (1, 40, 7):
            assert session.check(feeds(2, length)).passed
        assert held(opened) == before
        with pytest.raises(ModelError, match="'batch' = 4, above its upper bound 3"):
            session.run(feeds(4, 2))


def test_seen_shapes_are_kept_and_the_oldest_go(device_index):
    with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
        for shape in SHAPES:
            session.run(feeds(*shape))
        assert len(session.roots[0].entries) == len(SHAPES) > executor.KEPT_PROGRAMS
        with settings.settings(KEPT_PLANS=2):
            session.run(feeds(2, 5))
        kept = [key[0][0][:2] for key in session.roots[0].entries]
        assert kept == [(3, 9), (2, 5)]


@pytest.mark.full
def test_bounded_sessions_leave_nothing(device_index):
    opened = open_devices.open_device(device_index)
    seen = []
    for _ in range(4):
        with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
            for shape in SHAPES[::3]:
                session.run(feeds(*shape))
            with settings.settings(DISABLE_ALIASING=True):
                session.run(feeds(3, 8))
        seen.append((api.live_handles(), *held(opened)))
    vklab.load(block(), device_index, upper_bounds=BOUNDS)
    gc.collect()
    vklab.load(block(), device_index).close()  # frees what was forgotten
    seen.append((api.live_handles(), *held(opened)))
    assert seen[1] == seen[-2] == seen[-1]


def test_a_shape_waits_for_what_another_left_running(device_index, monkeypatch):
    def too_long(submission, polls):
        raise TimeoutError("vkWaitForFences", "VK_TIMEOUT", "as in a test")

    with vklab.load(block(), device_index, upper_bounds=BOUNDS) as session:
        session.run(feeds(2, 7))
        with monkeypatch.context() as patch:
            for kind in (Submission, EventSubmission):
                patch.setattr(kind, "wait", too_long)
            with pytest.raises(TimeoutError, match="under way"):
                session.run(feeds(2, 7))
        with monkeypatch.context() as patch:
            for kind in (Fence, EventFence):
                patch.setattr(kind, "is_signaled", lambda fence: False)
            for shape in ((2, 7), (1, 2), (3, 9)):  # they share its memory
                with pytest.raises(TimeoutError, match="still works on an earlier run"):
                    session.run(feeds(*shape))
        assert session.check(feeds(1, 2)).passed and session.check(feeds(2, 7)).passed
