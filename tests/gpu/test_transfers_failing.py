"""Values between two devices when calls fail: another way or a clear error, and nothing left."""

from __future__ import annotations

import pytest

from support.runs.transfer_runs import FAKE
from support.runs.two_drivers import both

pytestmark = pytest.mark.full

# Every call by which a session gets its memory, its ways and its copies fails once: another way
# is taken or a clear error is raised, and nothing is left.
LOADING = (
    FAKE
    + """
import re
from vklab.vulkan.device import Device
NAMES = ("vkAllocateMemory", "vkBindBufferMemory", "vkCreateBuffer", "vkCreateFence",
         "vkCreateCommandPool", "vkAllocateCommandBuffers", "vkBeginCommandBuffer",
         "vkEndCommandBuffer", "vkGetMemoryFdKHR", "vkGetMemoryFdPropertiesKHR",
         "vkGetMemoryHostPointerPropertiesEXT", "vkMapMemory")
calls, armed = [], [-1]
def arm():
    real = Device.command
    def command(device, name):
        found = real(device, name)
        if name not in NAMES:
            return found
        def call(*arguments):
            calls.append(name)
            return -1 if len(calls) - 1 == armed[0] else found(*arguments)
        return call
    Device.command = command
def run(**switches):
    calls.clear()
    with settings.settings(DISABLE_DIRECT_IO=True, STAGING_SLOT_BYTES=50, **switches):
        with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
            assert differs(one, session.run(fed)) < 1e-6
            return paths(session)
def every(**switches):
    armed[0], outcomes = -1, []
    usual = run(**switches)
    count = len(calls)
    kept = api.live_handles()
    for armed[0] in range(int(sys.argv[1]), count, int(sys.argv[2])):
        try:
            outcomes.append("" if run(**switches) == usual else "other way")
        except VulkanError as error:
            assert calls[armed[0]] in str(error), error
            outcomes.append("error")
        assert api.live_handles() == kept, (armed, calls[armed[0]], api.live_handles(), kept)
        assert descriptors() == len(fake.memory) == 0
    return [usual, *(word for word in ("other way", "error") if word in outcomes)]
"""
)


@pytest.mark.parametrize(("first", "step"), [
    (3, 23), *(pytest.param(n, 4, marks=pytest.mark.slow) for n in range(4)),
])  # fmt: skip
def test_every_call_of_loading_that_fails_is_another_way_or_a_clear_error(first, step):
    said = both(
        LOADING
        + """
arm()
print(every(), every(DISABLE_SHARED_MEMORY=True))
with fake:
    fresh()
    arm()
    print(every())
    fresh()
""",
        first,
        step,
    )
    ends = "'other way', 'error']"
    assert said == (
        f"[{{'ring in shared host memory'}}, {ends} [{{'ring with host copies'}}, "
        f"'error']\n[{{'dma-buf'}}, {ends}\n"
    )


# A step of 4 is no multiple of the three calls of a submission: each of them fails somewhere.
SOME, ALL = 4, pytest.param(1, marks=pytest.mark.slow)


@pytest.mark.parametrize("step", [3 * SOME, ALL])
@pytest.mark.parametrize("copied", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_every_call_of_a_run_through_the_ring_that_fails_is_a_clear_error(copied, step):
    both(
        FAKE
        + """
from support.fakes.failing_calls import FailingCalls
def through_the_ring():
    return load(STAGING_SLOT_BYTES=40, DISABLE_SHARED_MEMORY=sys.argv[1])
with nothing_left(), FailingCalls() as calls:
    # Three values in three pieces each, in and out, beside the five stages themselves.
    assert calls.every(through_the_ring, fed, int(sys.argv[2])) == 15 + 3 * 3 * 2 * 3
""",
        copied,
        step,
    )


@pytest.mark.parametrize("step", [SOME, ALL])
def test_every_call_of_a_run_by_dma_buf_that_fails_is_a_clear_error(step):
    both(
        FAKE
        + """
from support.fakes.failing_calls import FailingCalls
with fake:
    fresh()
    with nothing_left(), FailingCalls() as calls:
        assert calls.every(load, fed, int(sys.argv[1])) == 15 + 3 * 3
    assert not fake.memory and not descriptors()
""",
        step,
    )
