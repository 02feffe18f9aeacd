"""Programs that set an event at their end, as on GPUs, here on every device."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import random_array, relu

import vklab
from vklab import settings
from vklab.errors import TimeoutError
from vklab.runtime.polled import commands
from vklab.runtime.program import Program
from vklab.vulkan import api, event, sync


@pytest.fixture(params=[True, False], ids=["polls", "blocks"])
def events(request, monkeypatch):
    """Make all programs set events, and poll them or not."""
    init = Program.__init__

    def as_gpu(self, *given, **more):
        init(self, *given, **more)
        self.polls = request.param

    monkeypatch.setattr(Program, "__init__", as_gpu)
    monkeypatch.setattr(commands, "class_for", lambda opened: event.EventCommands)
    monkeypatch.setattr(event, "POLL_SECONDS", 30.0)  # a busy machine may take over a millisecond


def check(session, rows=3):
    x = random_array((rows, 5))
    np.testing.assert_array_equal(session.run(x)["y"], np.maximum(x, 0))


def test_runs_set_an_event_and_need_no_fence(events, device, monkeypatch):
    with vklab.load(relu((3, 5)), device) as session:
        for _ in range(3):
            check(session)
        program = session.roots[0].find({"x": random_array((3, 5))}).whole
        assert isinstance(program.commands, event.EventCommands)
        assert program._submission.fence.is_ended != program.polls
        with monkeypatch.context() as patch:  # after a millisecond a wait blocks
            patch.setattr(event.EventFence, "poll", lambda fence, seconds: False)
            check(session)
            assert program._submission.fence.is_ended
        with settings.settings(DISABLE_POLLING=True):
            check(session)
        with settings.settings(DISABLE_REPLAY=True):  # records again, which needs the end
            check(session)
            check(session)
        assert session.time(random_array((3, 5)), repeats=2).device_ns
        with session.bind(random_array((3, 5)), ahead=True) as bound:
            bound.submit()
            bound.submit()
            bound.collect()
            np.testing.assert_array_equal(
                bound.collect()["y"].numpy(), np.maximum(random_array((3, 5)), 0))
    assert not api.LIVE["VkEvent"]


def test_programs_share_memory_that_grows(events, device):
    with vklab.load(relu(("rows", 5)), device, upper_bounds={"rows": 9}) as session:
        for rows in (2, 9, 3, 9, 1):
            check(session, rows)
    assert not api.LIVE["VkEvent"]


def test_a_wait_that_takes_too_long_is_told(events, device_index, monkeypatch):
    def too_long(fence, seconds=None):
        raise TimeoutError("vkWaitForFences", "VK_TIMEOUT", "as in a test")

    with vklab.load(relu((3, 5)), device_index) as session:
        check(session)
        with monkeypatch.context() as patch:
            patch.setattr(event.EventFence, "poll", lambda fence, seconds: False)
            patch.setattr(sync.Fence, "wait", too_long)
            with pytest.raises(TimeoutError, match="under way"):
                check(session)
            with pytest.raises(TimeoutError, match="still works on an earlier run"):
                check(session)
        session.require_open().device.call("vkDeviceWaitIdle")  # a busy machine is still at it
        check(session)


def test_devices_without_a_use_for_events_have_fences(device_index, monkeypatch):
    with vklab.load(relu((3, 5)), device_index) as session:
        opened = session.require_open()
        assert commands.class_for(opened) is None
        with settings.settings(EVENTS=True):
            assert opened.info.is_cpu == (commands.class_for(opened) is None)
