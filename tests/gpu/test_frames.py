"""Frames on several devices, nested in callbacks, checked: who brings them home, and from where."""

from __future__ import annotations

import gc
import re
import threading

import numpy as np
import pytest

import vklab
from support.graphs.small_models import random_array, relu
from support.runs.two_drivers import both
from support.runs.waits import LIMIT_S, until
from vklab.errors import CheckError, SetupError, VulkanError
from vklab.runtime.many.frames import FrameSlot
from vklab.runtime.program import Program


@pytest.fixture
def session(device_index):
    """Yield a session whose two places for frames are warm."""
    with vklab.load(relu((1, 8)), device_index) as loaded:
        list(loaded.map([random_array((1, 8))] * 4))
        yield loaded


def is_right(outputs, x):
    return np.array_equal(outputs["y"], np.maximum(x, 0))


def numbered(count):
    return [random_array((1, 8), n) for n in range(count)]


def test_a_warm_frame_is_submitted_by_its_caller_and_copied_once(session, monkeypatch):
    real, started = Program.submit, []

    def submit(program, submission=None):
        started.append(threading.current_thread())
        real(program, submission)

    monkeypatch.setattr(Program, "submit", submit)
    for x in numbered(5):
        assert is_right(session.submit(x).result(LIMIT_S), x)
    assert set(started) == {threading.main_thread()}


def test_a_frame_that_cannot_be_started_fails_by_its_future(session, monkeypatch):
    def submit(program, submission=None):
        raise VulkanError("vkQueueSubmit", "VK_ERROR_OUT_OF_HOST_MEMORY", "none left")

    with monkeypatch.context() as patch:
        patch.setattr(Program, "submit", submit)
        futures = [session.submit(x) for x in numbered(5)]
        for future in futures:
            with pytest.raises(VulkanError, match="none left"):
                future.result(LIMIT_S)
    x = random_array((1, 8), 9)
    assert is_right(session.submit(x).result(LIMIT_S), x)


def test_an_interrupt_on_the_way_loses_no_place(session, monkeypatch):
    real = Program.submit

    def submit(program, submission=None):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        real(program, submission)

    with monkeypatch.context() as patch:
        patch.setattr(Program, "submit", submit)
        for x in numbered(2):
            with pytest.raises(KeyboardInterrupt):
                session.submit(x)
    assert all(map(is_right, session.map(numbered(6)), numbered(6)))


@pytest.mark.parametrize("is_late", [True, False], ids=["on its way home", "at once"])
def test_callbacks_may_wait_for_other_frames_and_for_runs(session, is_late, monkeypatch):
    x, found, done, added = random_array((1, 8)), [], threading.Event(), threading.Event()
    finish = FrameSlot.finish

    def finished(slot, *given):
        assert not is_late or added.wait(LIMIT_S)
        return finish(slot, *given)

    monkeypatch.setattr(FrameSlot, "finish", finished)

    def innermost(future):
        found.append(session.run(x))
        done.set()

    def inner(future):
        found.append(session.submit(x).result(LIMIT_S))
        session.submit(x).add_done_callback(innermost)

    # Of four frames some are started and wait for the thread that brings the first home.
    futures = [session.submit(x) for _ in range(4)]
    futures[0].add_done_callback(inner)
    added.set()
    assert all(is_right(future.result(LIMIT_S), x) for future in futures)
    assert done.wait(LIMIT_S) and len(found) == 2 and all(is_right(y, x) for y in found)


def test_a_callback_may_close_while_others_wait_for_its_own_thread(device_index):
    session = vklab.load(relu((1, 8)), device_index)
    x = random_array((1, 8))
    list(session.map([x] * 4))
    closed = threading.Event()
    futures = [session.submit(x) for _ in range(2)]
    futures[0].add_done_callback(lambda _: (session.close(), closed.set()))
    assert closed.wait(LIMIT_S) and is_right(futures[1].result(LIMIT_S), x)


def test_frames_of_a_forgotten_session_come_home(device_index):
    before = threading.active_count()
    session = vklab.load(relu((1, 8)), device_index)
    items = numbered(30)
    futures = [session.submit(x) for x in items]
    del session
    gc.collect()
    assert all(
        is_right(future.result(LIMIT_S), x) for future, x in zip(futures, items, strict=True)
    )
    until(lambda: threading.active_count() <= before)


def test_an_output_that_is_an_input_is_the_frame_s_own(device_index):
    proto = relu((1, 8))
    proto.graph.output.add().CopyFrom(proto.graph.input[0])
    with vklab.load(proto, device_index) as session:
        for x in (random_array((1, 8)), random_array((1, 8), 1)):
            kept, future = x.copy(), session.submit(x)
            x[:] = 7
            assert np.array_equal(future.result(LIMIT_S)["x"], kept)


TWO = """
import threading, numpy as np, vklab
from vklab.runtime.program import Program
from support.runs.split_models import *
source, fed = diamond()
one = outputs_of(source, fed)
submit, wait = Program.submit, Program.wait
"""

OVERLAP = """
lock, in_flight, most, meet = threading.Lock(), {}, {}, threading.Barrier(2, timeout=60)
met = {index: 0 for index in BOTH}
def noted_submit(program, submission=None):
    index = program.opened.info.index
    with lock:
        in_flight[index] = in_flight.get(index, 0) + 1
        most[index] = max(most.get(index, 0), in_flight[index])
    submit(program, submission)
def noted_wait(program):
    index = program.opened.info.index
    if met[index] < 15:
        met[index] += 1
        meet.wait()  # the other device waits at the same time, or this times out
    wait(program)
    with lock:
        in_flight[index] -= 1
with vklab.load(source, devices=BOTH, replicate=True) as session:
    list(session.map([fed] * 16))
    Program.submit, Program.wait = noted_submit, noted_wait
    # A queue that has always more than enough: no device has a reason to stand still.
    for future in [session.submit(fed) for _ in range(80)]:
        assert differs(one, future.result(240)) < 1e-6
    assert set(met.values()) == {15} and set(most.values()) == {2}, (met, most)
"""


def test_nothing_of_ours_makes_one_device_wait_for_the_other():
    both(TWO + OVERLAP)


UNEQUAL = """
used, enough, slow = {index: 0 for index in BOTH}, threading.Event(), BOTH[1]
def noted_wait(program):
    wait(program)
    index = program.opened.info.index
    used[index] += 1
    if used[BOTH[0]] >= AHEAD:
        enough.set()
    if index == slow:
        assert enough.wait(240), used  # the other goes on meanwhile, in order or not
for AHEAD, frames in ((8, "submit"), (5, "map")):
    with vklab.load(source, devices=BOTH, replicate=True) as session:
        list(session.map([fed] * 16))
        used, enough = {index: 0 for index in BOTH}, threading.Event()
        Program.wait = noted_wait
        if frames == "map":
            found = list(session.map([fed] * 20))
        else:
            found = [future.result(240) for future in [session.submit(fed) for _ in range(20)]]
        Program.wait = wait
        assert len(found) == 20 and all(differs(one, y) < 1e-6 for y in found)
"""


def test_a_slow_device_holds_up_no_other():
    both(TWO + UNEQUAL)


def test_frames_are_checked_and_profiled_as_runs_are(session, monkeypatch, capsys):
    x = random_array((1, 8))
    with vklab.settings.settings(DEBUG=2):
        assert is_right(session.submit(x).result(LIMIT_S), x)
    assert "1 steps" in capsys.readouterr().err
    real = Program.finish

    def finish(program):
        return {name: array + 1 for name, array in real(program).items()}

    for wanted in ("outputs", "nodes"):
        with vklab.settings.settings(CHECK=wanted):
            assert is_right(session.submit(x).result(LIMIT_S), x)
    with vklab.settings.settings(CHECK="all"), pytest.raises(SetupError, match="CHECK='all'"):
        session.submit(x).result(LIMIT_S)
    monkeypatch.setattr(Program, "finish", finish)
    with vklab.settings.settings(CHECK="outputs"):
        for found in (session.submit(x), session.submit({"x": x})):
            with pytest.raises(CheckError, match=f"^{re.escape(session.device.name)} DIFFERS"):
                found.result(LIMIT_S)


CHECKED = """
import os
from vklab.errors import CheckError
from vklab.runtime.many.split import ChunkTask
def fails(session, nodes=False):
    found = session.check(fed, nodes=nodes)
    assert not nodes or found.passed or found.node, found
    return not found.passed
names = [info.name for info in vklab.devices()]
wrong = lambda made: {name: array + 1 for name, array in made.items()}
run, finish = Program.run, Program.finish
def bad_run(program, values):
    made = run(program, values)
    return wrong(made) if program.opened.info.index == BAD else made
def bad_finish(program):
    made = finish(program)
    return wrong(made) if program.opened.info.index == BAD else made
Program.run, Program.finish = bad_run, bad_finish
with vklab.load(source, devices=BOTH, replicate=True) as session:
    for BAD in (None, *BOTH):
        assert [fails(session, nodes) for nodes in (False, True)] == [BAD is not None] * 2
    session.run(fed)  # unchecked
    for CHECK in ("outputs", "nodes"):
        with vklab.settings.settings(CHECK=CHECK):
            said = []
            for future in [session.submit(fed) for _ in range(8)]:
                error = future.exception(120)
                assert error is None or isinstance(error, CheckError), error
                said.append(str(error))
        # Those of one device fail, and name it; those of the other are right.
        assert {line.startswith(names[BAD]) for line in said} == {True, False}, said
finish_task = ChunkTask.finish
def bad_task(task):
    finish_task(task)
    if task.program.opened.info.index == BAD:
        task.made = wrong(task.made)
ChunkTask.finish = bad_task
with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    for BAD in (None, *BOTH):
        assert fails(session, nodes=True) == (BAD is not None)
"""


@pytest.mark.full
def test_every_device_of_replicas_and_of_a_split_model_is_checked():
    both(TWO + CHECKED)


def test_places_are_freed_while_nothing_is_planned(device_index, monkeypatch):
    session, real, owned = vklab.load(relu((1, 8)), device_index), Program.close, []
    list(session.map(numbered(4)))
    lock = session.roots[0].executor.lock

    def close(program):
        owned.append(lock._is_owned())
        real(program)

    monkeypatch.setattr(Program, "close", close)
    session.close()
    assert owned == [True, True, False]  # two places, and the session's own
