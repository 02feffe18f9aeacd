"""Programs that set an event at their end, as on GPUs, here on every device."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import vklab
from support.graphs.small_models import random_array, relu
from support.runs.child import python
from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError
from vklab.runtime.polled import commands
from vklab.runtime.program import Program
from vklab.vulkan import api, event, instance, sync

LOST = -4  # VK_ERROR_DEVICE_LOST


@pytest.fixture(params=[True, False], ids=["polls", "blocks"])
def events(request, monkeypatch):
    """Make all programs set events, and poll them or not."""
    force(monkeypatch, request.param)


@pytest.fixture
def polled(monkeypatch):
    """Make all programs set events and poll them."""
    force(monkeypatch, True)


def force(monkeypatch, polls):
    init = Program.__init__

    def as_gpu(self, *given, **more):
        init(self, *given, **more)
        self.polls = polls

    monkeypatch.setattr(Program, "__init__", as_gpu)
    monkeypatch.setattr(commands, "class_for", lambda opened: event.EventCommands)
    monkeypatch.setattr(event, "POLL_SECONDS", 30.0)  # a busy machine may take over a millisecond


def check(session, rows=3):
    x = random_array((rows, 5))
    np.testing.assert_array_equal(session.run(x)["y"], np.maximum(x, 0))


def only_program(session):
    return session.roots[0].find({"x": random_array((3, 5))}).whole


def noted(monkeypatch, device, *names):
    """Return a list that receives the name and the arguments of each call of these commands."""
    calls, command = [], device.command

    def wrapped(name):
        found = command(name)
        if name not in names:
            return found
        return lambda *given: (calls.append((name, given)), found(*given))[1]

    monkeypatch.setattr(device, "command", wrapped)
    return calls


def never(fence, seconds):
    """Poll as `EventFence.poll` does while the device works."""
    return False


def test_runs_set_an_event_and_need_no_fence(events, device, monkeypatch):
    with vklab.load(relu((3, 5)), device) as session:
        for _ in range(3):
            check(session)
        program = only_program(session)
        assert isinstance(program.commands, event.EventCommands)
        assert program._submission.fence.is_ended != program.polls
        with monkeypatch.context() as patch:  # after a millisecond a wait blocks
            patch.setattr(event.EventFence, "poll", never)
            check(session)
            assert program._submission.fence.is_ended
        with settings.settings(DISABLE_POLLING=True):
            check(session)
        with settings.settings(DISABLE_REPLAY=True):  # records again, which needs the end
            check(session)
            check(session)
        assert session.time(random_array((3, 5)), repeats=2).device_ns
        assert "relu" in str(session.profile(random_array((3, 5)), repeats=2))
        assert session.trace(random_array((3, 5))).spans
        check(session)
        with session.bind(random_array((3, 5)), ahead=True) as bound:
            bound.submit()
            bound.submit()
            bound.collect()
            np.testing.assert_array_equal(
                bound.collect()["y"].numpy(), np.maximum(random_array((3, 5)), 0)
            )
    assert not api.LIVE["VkEvent"]


def test_the_host_sees_all_writes_once_the_event_is_set(polled, device_index, monkeypatch):
    opened = vklab.runtime.open_devices.open_device(device_index)
    names = "vkCmdDispatch", "vkCmdPipelineBarrier", "vkCmdSetEvent", "vkEndCommandBuffer"
    calls = noted(monkeypatch, opened.device, *names)
    with vklab.load(relu((3, 5)), device_index):
        assert tuple(name for name, _ in calls) == names
    (_, (_, before, after, _, count, barrier, *_)), (_, (_, _, scope)) = calls[1:3]
    everything = api.constant("VK_PIPELINE_STAGE_ALL_COMMANDS_BIT")
    assert (before, count, barrier.srcAccessMask) == (
        everything,
        1,
        api.constant("VK_ACCESS_MEMORY_WRITE_BIT"),
    )
    assert after & api.constant("VK_PIPELINE_STAGE_HOST_BIT")
    assert barrier.dstAccessMask & api.constant("VK_ACCESS_HOST_READ_BIT")
    assert after & scope == everything  # so the event is set after the barrier
    assert not scope & api.constant("VK_PIPELINE_STAGE_HOST_BIT")


def test_a_run_that_outlasts_polling_signals_its_own_fence_from_then_on(
    polled, device_index, monkeypatch
):
    opened = vklab.runtime.open_devices.open_device(device_index)
    submits = noted(monkeypatch, opened.device, "vkQueueSubmit")

    def sent(session):
        """Run once; return for each submission the command buffers, and whether it has a fence."""
        submits.clear()
        check(session)
        return [(given[1], given[3] != api.ffi.NULL) for _, given in submits]

    with vklab.load(relu((3, 5)), device_index) as session:
        assert sent(session) == [(1, True)]  # nothing is known yet
        assert sent(session) == sent(session) == [(1, False)]
        with monkeypatch.context() as patch:
            patch.setattr(event.EventFence, "poll", never)
            assert sent(session) == [(1, False), (0, True)]
            assert sent(session) == sent(session) == [(1, True)]
        with monkeypatch.context() as patch:
            patch.setattr(event, "SHORT", 0.0)  # polled in time, but not soon after its submission
            assert sent(session) == sent(session) == [(1, True)]
        assert sent(session) == [(1, True)]
        with monkeypatch.context() as patch:
            patch.setattr(event, "SHORT", 0.0)
            assert sent(session) == sent(session) == [(1, False)]  # what was short stays so
        with settings.settings(DISABLE_POLLING=True):
            assert sent(session) == [(1, False), (0, True)]
            assert sent(session) == [(1, True)]


def test_programs_share_memory_that_grows(events, device):
    for switches in ({}, {"DISABLE_PUSH_DESCRIPTORS": True}):
        with (
            settings.settings(**switches),
            vklab.load(relu(("rows", 5)), device, upper_bounds={"rows": 9}) as session,
        ):
            for rows in (2, 9, 3, 9, 1):
                check(session, rows)
    assert not api.LIVE["VkEvent"]


def test_a_wait_that_takes_too_long_is_told(events, device_index, monkeypatch):
    def too_long(fence, seconds=None):
        raise TimeoutError("vkWaitForFences", "VK_TIMEOUT", "as in a test")

    with vklab.load(relu((3, 5)), device_index) as session:
        check(session)
        check(session)  # the fence of the first run is seen
        with monkeypatch.context() as patch:
            patch.setattr(event.EventFence, "poll", never)
            patch.setattr(sync.Fence, "wait", too_long)
            patch.setattr(sync.Fence, "is_signaled", lambda fence: False)
            with pytest.raises(TimeoutError, match="under way"):
                check(session)
            with pytest.raises(TimeoutError, match="still works on an earlier run"):
                check(session)
        session.require_open().device.call("vkDeviceWaitIdle")  # a busy machine is still at it
        check(session)


def answer(monkeypatch, device, **results):
    """Let commands of a device return these results from now on, without doing anything."""
    command = device.command
    monkeypatch.setattr(
        device,
        "command",
        lambda name: (lambda *given: results[name]) if name in results else command(name),
    )


@pytest.mark.parametrize("status", ["VK_EVENT_RESET", LOST])
def test_an_event_of_a_lost_device_is_not_waited_for(polled, device_index, monkeypatch, status):
    is_set = api.constant(status) if isinstance(status, str) else status
    first = vklab.load(relu((3, 5)), device_index)
    with monkeypatch.context() as patch:
        device = first.require_open().device
        check(first)
        check(first)
        patch.setattr(event, "POLL_SECONDS", 0.05)
        answer(patch, device, vkQueueSubmit=LOST, vkGetFenceStatus=LOST)
        completion = only_program(first)._submission.fence
        patch.setattr(completion._fence, "_wait", lambda *given: LOST)
        patch.setattr(completion, "_status", lambda *given: is_set)
        with pytest.raises(DeviceLostError, match="under way: chunk 0: .*relu"):
            check(first)
        with pytest.raises(DeviceLostError, match="was lost; close this session"):
            check(first)
        device.call("vkDeviceWaitIdle")  # this device is not lost
        first.close()
    with vklab.load(relu((3, 5)), device_index) as second:
        check(second)
    assert not api.LIVE["VkEvent"]


def test_a_lost_device_is_told_after_an_interrupted_wait(polled, device_index, monkeypatch):
    session = vklab.load(relu((3, 5)), device_index)
    check(session)
    with monkeypatch.context() as patch:
        patch.setattr(only_program(session)._submission.fence, "_status", interrupt)
        with pytest.raises(KeyboardInterrupt):
            check(session)
        patch.setattr(only_program(session)._submission.fence, "_status", lambda *given: LOST)
        answer(patch, session.require_open().device, vkGetFenceStatus=LOST)
        with pytest.raises(DeviceLostError):
            check(session)
    session.require_open().device.call("vkDeviceWaitIdle")
    session.close()


def interrupt(*given):
    raise KeyboardInterrupt


def test_a_wait_that_was_interrupted(polled, device_index, monkeypatch):
    with vklab.load(relu((3, 5)), device_index) as session:
        check(session)
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(only_program(session)._submission.fence, "_status", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    check(session)
            session.require_open().device.call("vkDeviceWaitIdle")
            check(session)
    assert not api.LIVE["VkEvent"]


def test_a_fence_in_the_queue_is_waited_for_before_it_is_freed(polled, device_index):
    """Another fence has told the end of the commands; their own may still be in the queue."""
    with vklab.load(relu((3, 5)), device_index) as session:
        check(session)
        program, device = only_program(session), session.require_open().device
        fence = program._submission.fence
        event.settle(device)
        assert fence.is_ended and fence.covered
        program.settle()
        assert not fence.covered
        check(session)


def test_sessions_of_several_threads_share_a_queue(events, device_index):
    failures = []

    def use(number):
        try:
            for _ in range(3):
                with vklab.load(relu((number + 1, 5)), device_index) as session:
                    for _ in range(10):
                        check(session, number + 1)
                    with session.bind(random_array((number + 1, 5))) as bound:
                        bound.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert not api.LIVE["VkEvent"]


def test_devices_without_a_use_for_events_have_fences(device_index, monkeypatch):
    with vklab.load(relu((3, 5)), device_index) as session:
        opened = session.require_open()
        assert opened.info.is_cpu == (commands.class_for(opened) is None)
        for switch in ("DISABLE_EVENTS", "DISABLE_POLLING"):
            with settings.settings(**{switch: True}):
                assert commands.class_for(opened) is None


# Each step frees or records what commands use whose event is set, and whose fence is not.
VALID = """
import sys
import numpy as np, vklab
from support.graphs.small_models import relu
from vklab import settings
from vklab.runtime.polled import commands
from vklab.runtime.program import Program
from vklab.vulkan import api, event
commands.class_for = lambda opened: event.EventCommands
init = Program.__init__
def as_gpu(self, *given, **more):
    init(self, *given, **more)
    self.polls = True
Program.__init__ = as_gpu
event.POLL_SECONDS = 30.0
device = int(sys.argv[1])
def check(session, rows):
    x = np.full((rows, 5), -1, np.float32)
    assert (session.run(x)["y"] == 0).all()
push, replay = {"DISABLE_PUSH_DESCRIPTORS": True}, {"DISABLE_REPLAY": True}
for switches in ({}, push, {**push, **replay}):
    with settings.settings(**switches):
        with vklab.load(relu(("rows", 5)), device, upper_bounds={"rows": 9}) as session:
            for rows in (2, 9, 3, 9, 1):
                check(session, rows)
            pool = session.states[0].pool
            pool.fit({name: 2 * each.size_bytes for name, each in pool.buffers.items()}, "a test")
            check(session, 1)
        with vklab.load(relu((3, 5)), device) as session:
            check(session, 3)
            check(session, 3)
            session.profile(np.ones((3, 5), np.float32))
            check(session, 3)
            first = session.bind(np.ones((3, 5), np.float32), resident=["y"])
            first.run()
            second = session.bind(first.outputs["y"])
            for _ in range(3):
                second.run()
            first.close()
            with session.bind(np.ones((3, 5), np.float32), ahead=True) as bound:
                bound.submit()
                bound.submit()
                bound.collect()
                bound.collect()
assert not api.LIVE["VkEvent"]
print("valid")
"""


@pytest.mark.parametrize("also", [
    "", pytest.param("VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT", id="hazards"),
])  # fmt: skip
def test_the_validation_layer_is_silent(device_index, also):
    if instance.VALIDATION_LAYER not in instance.layers():
        pytest.skip("no validation layer")
    assert python(VALID, device_index, VKLAB_VALIDATE="1", VK_LAYER_ENABLES=also) == "valid\n"
