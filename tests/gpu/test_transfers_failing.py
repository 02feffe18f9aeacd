"""Values between two devices when calls fail: another way or a clear error, and nothing left."""

from __future__ import annotations

import pytest
from transfer_runs import FAKE
from two_drivers import both

pytestmark = pytest.mark.full

# Every call by which a session gets its memory, its ways and its copies fails once: another way
# is taken or a clear error is raised, and nothing is left.
LOADING = FAKE + """
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


@pytest.mark.parametrize(("first", "step"), [
    (3, 11), *(pytest.param(n, 4, marks=pytest.mark.slow) for n in range(4)),
])  # fmt: skip
def test_every_call_of_loading_that_fails_is_another_way_or_a_clear_error(first, step):
    said = both(LOADING + """
arm()
print(every(), every(DISABLE_SHARED_MEMORY=True))
with fake:
    fresh()
    arm()
    print(every())
    fresh()
""", first, step)  # fmt: skip
    ends = "'other way', 'error']"
    assert said == (f"[{{'ring in shared host memory'}}, {ends} [{{'ring with host copies'}}, "
                    f"'error']\n[{{'dma-buf'}}, {ends}\n")  # fmt: skip


RUNNING = FAKE + """
import threading, time
from vklab.vulkan.device import Device
CODES = {"vkResetFences": [-2], "vkQueueSubmit": [-1, -2, -4], "vkWaitForFences": [-1, -4, 2]}
calls, armed, lock = [], {}, threading.Lock()
def arm():
    real = Device.command
    def command(device, name):
        found = real(device, name)
        if name not in CODES:
            return found
        def call(*arguments):
            with lock:
                number = len(calls)
                calls.append(name)
            if number not in armed:
                return found(*arguments)
            if name == "vkWaitForFences" and armed[number] == -4:
                found(*arguments)  # nothing runs on a device that is lost
            return armed[number]
        return call
    Device.command = command
def again(session):
    for _ in range(500):
        try:
            return session.run(fed)
        except TimeoutError as error:
            assert "still works on an earlier run" in str(error)
            time.sleep(0.01)
def every(**switches):
    session = load(**switches)
    tried, failures = 0, 0
    calls.clear()
    session.run(fed)
    count = len(calls)
    for number in range(count):
        for code in CODES[calls[number]] if number < len(calls) else ():
            calls.clear()
            armed[number] = code
            begun = time.perf_counter()
            try:
                session.run(fed)
                assert number >= len(calls), "the failure is lost"
            except VulkanError as error:
                assert calls[number] in str(error) and "; in stage " in str(error), error
                assert isinstance(error, DeviceLostError) == (code == -4), error
                if code == -4:
                    try:
                        armed.clear()
                        session.run(fed)
                        raise AssertionError("a lost device is used")
                    except DeviceLostError as error:
                        assert "close this session and load again" in str(error)
                    session.close()
                    session = load(**switches)
                failures += 1
            armed.clear()
            assert time.perf_counter() - begun < 5
            assert differs(one, again(session)) < 1e-6
            calls.clear()
            session.run(fed)
    session.close()
    return count, failures
"""


@pytest.mark.parametrize("copied", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_every_call_of_a_run_through_the_ring_that_fails_is_a_clear_error(copied):
    said = both(RUNNING + """
with nothing_left():
    arm()
    print(*every(STAGING_SLOT_BYTES=40, DISABLE_SHARED_MEMORY=sys.argv[1]))
""", copied)  # fmt: skip
    count, failures = map(int, said.split())
    # Three values in three pieces each, in and out, beside the five stages themselves.
    assert count == 15 + 3 * 3 * 2 * 3 and failures > count


def test_every_call_of_a_run_by_dma_buf_that_fails_is_a_clear_error():
    said = both(RUNNING + """
with fake:
    fresh()
    arm()
    with nothing_left():
        print(*every())
    assert not fake.memory and not descriptors()
""")  # fmt: skip
    count, failures = map(int, said.split())
    assert count == 15 + 3 * 3 and failures > count
