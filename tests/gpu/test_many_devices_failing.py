"""Spread models when calls fail, and when many threads run them: clear errors, nothing left."""

from __future__ import annotations

import pytest
from two_drivers import both

START = """
import numpy as np, vklab
from split_models import *
from vklab.errors import *
"""

# Every Vulkan call of a run fails once, in each way that it can; a clear error, no hang, nothing
# left; and where the device is not lost, the session goes on.
FAULTS = START + """
import threading, time
from vklab.vulkan.device import Device
CODES = {"vkResetFences": [-2], "vkQueueSubmit": [-1, -2, -4], "vkWaitForFences": [-1, -4, 2]}
calls, seen, armed, lock, real = [], set(), {}, threading.Lock(), Device.command
def command(device, name):
    found = real(device, name)
    def call(*arguments):
        seen.add(name)
        if name not in CODES:
            return found(*arguments)
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
source, fed = diamond()
one = outputs_of(source, fed)
def load():
    session = vklab.load(source, devices=BOTH, place=DIAMOND)
    assert differs(one, session.run(fed)) < 1e-6
    calls.clear(), seen.clear()
    return session
with nothing_left():
    session = load()
    session.run(fed)
    assert seen == set(CODES) and len(calls) == 15, (seen, calls)  # else CODES lacks a call
    tried = 0
    for number in range(15):
        for code in sorted({code for codes in CODES.values() for code in codes}):
            calls.clear()
            armed[number] = code
            begun = time.perf_counter()
            try:
                session.run(fed)
                raise AssertionError("the failure is lost")
            except VulkanError as error:
                name = calls[number]
                assert name in str(error) and "; in stage " in str(error), error
                lost = isinstance(error, DeviceLostError)
                assert lost == (code == -4), error
            armed.clear()
            tried += 1
            assert time.perf_counter() - begun < 5
            if lost:
                try:
                    session.run(fed)
                    raise AssertionError("a lost device is used")
                except DeviceLostError as error:
                    assert "close this session and load again" in str(error)
                session.close()
                session = load()
            assert differs(one, again(session)) < 1e-6
    session.close()
print(tried)
"""


def test_every_call_of_a_run_that_fails_is_a_clear_error_and_nothing_is_left():
    assert int(both(FAULTS)) == 60  # 15 calls, 4 codes


RUNS = START + """
import sys, threading
count = int(sys.argv[1]) // 8
source, fed = diamond()
want = {rows: outputs_of(source, {n: np.resize(a, (rows, 8)) for n, a in fed.items()})
        for rows in (3, 4)}
wrong = []
def work(rows):
    given = {n: np.resize(a, (rows, 8)) for n, a in fed.items()}
    for _ in range(count):
        if differs(want[rows], session.run(given)) > 1e-6:
            wrong.append(rows)
with nothing_left(), vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    for rows in want:
        session.run({n: np.resize(a, (rows, 8)) for n, a in fed.items()})
    before = api.live_handles(), threading.active_count()
    threads = [threading.Thread(target=work, args=(3 + i % 2,)) for i in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join(600)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    after = api.live_handles(), threading.active_count()
    assert after[0] == before[0] and after[1] <= before[1] + 2
assert threading.active_count() == 1
"""


@pytest.mark.parametrize("count", [320, pytest.param(10_000, marks=pytest.mark.slow)])
def test_threads_run_one_spread_session(count):
    both(RUNS, count)
