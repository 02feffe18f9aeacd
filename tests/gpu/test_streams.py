"""Many frames in flight: order, errors at their place, copies, cancelling and closing."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest
from onnx import helper

import vklab
from support.graphs.small_models import model, random_array, relu, value
from support.runs.handles import left
from support.runs.two_drivers import both
from support.runs.waits import LIMIT_S, until
from vklab import settings
from vklab.errors import ModelError, OutOfMemoryError, VklabError
from vklab.runtime import open_devices
from vklab.runtime.executor import Executor
from vklab.runtime.many import streams
from vklab.runtime.program import Program


def dense():
    """Return a model whose weights are larger than all else, of any number of rows."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")
    proto = model([node], [value("x", ("n", 64))], ["y"], {"w": random_array((64, 300))})
    return proto, random_array((64, 300))


def rows(count, seed=0):
    """Return an input of the dense model."""
    return random_array((count, 64), seed)


@pytest.fixture
def session(device, nothing_left):
    proto, _ = dense()
    with vklab.load(proto, device) as loaded:
        yield loaded


@pytest.fixture
def nothing_left(device):
    """Fail if a test leaves memory or handles behind; kernels stay with the device."""
    opened = open_devices.open_device(device)

    def held():
        # Those that call callbacks stay with the process: how many depends on who is quick.
        threads = {t.name for t in threading.enumerate() if "vklab callback" not in t.name}
        return left(opened), threads

    before = held()
    yield opened
    assert held() == before


WEIGHTS = dense()[1]


def is_right(outputs, x):
    """Tell whether these are the outputs for an input."""
    return np.allclose(outputs["y"], x @ WEIGHTS, rtol=1e-4, atol=1e-4)


def test_results_come_in_order_and_weights_are_shared(session):
    items = [rows(1 + n % 3, n) for n in range(40)]
    for in_flight in (0, 1, 5):
        found = list(session.map(iter(items), in_flight=in_flight))
        assert all(is_right(y, x) for y, x in zip(found, items, strict=True))
    assert session.states[0].weights.uploaded_bytes == WEIGHTS.nbytes
    futures = [session.submit({"x": x}) for x in items]
    assert all(
        is_right(future.result(LIMIT_S), x) for future, x in zip(futures, items, strict=True)
    )
    assert is_right(session.run(items[0]), items[0]) and session.plan.dispatches


def test_a_session_has_no_more_slots_and_threads_than_items(session):
    before = threading.active_count()
    assert len(list(session.map([rows(2)] * 20, in_flight=1000))) == 20
    assert len(session.frames().slots) <= 20 and threading.active_count() <= before + 21
    with pytest.raises(ValueError, match="in_flight=5000: at most 1024 frames are in flight"):
        session.map([rows(2)], in_flight=5000)


def test_frames_do_not_share_memory(session, monkeypatch):
    meet, real, seen = threading.Barrier(3, timeout=LIMIT_S), Program.wait, set()

    def wait(program):
        seen.add(id(program))
        meet.wait()  # three frames are under way, or this times out
        real(program)

    items = [rows(2, n) for n in range(3)]
    session.run(items[0])
    monkeypatch.setattr(Program, "wait", wait)
    found = list(session.map(items, in_flight=3))
    assert len(seen) == 3
    assert all(is_right(y, x) for y, x in zip(found, items, strict=True))


def test_inputs_are_copied_when_they_are_submitted(session):
    x = rows(3)
    kept, futures = x.copy(), []
    for _ in range(8):
        futures.append(session.submit(x))
    x[:] = 0
    assert all(is_right(future.result(LIMIT_S), kept) for future in futures)


def test_errors_are_raised_at_their_element_and_later_ones_are_not_run(session):
    def items(bad):
        yield rows(1)
        yield rows(2)
        if bad is None:
            raise KeyError("the user's own")
        yield bad
        yield rows(3)

    for bad, error in ((rows(1)[:, :5], ModelError), (None, KeyError)):
        results = session.map(items(bad), in_flight=4)
        assert is_right(next(results), rows(1)) and is_right(next(results), rows(2))
        with pytest.raises(error):
            next(results)
        with pytest.raises(StopIteration):
            next(results)
    with pytest.raises(ModelError, match="is given as float64"):
        session.submit(rows(1).astype(np.float64))
    with pytest.raises(ValueError, match="in_flight=-1"):
        session.map([], in_flight=-1)
    assert is_right(session.run(rows(1)), rows(1))


def test_a_frame_is_submitted_while_a_run_is_under_way(session):
    session.submit(rows(1)).result(LIMIT_S)
    with ThreadPoolExecutor(1) as pool, session.exclusive():  # as during a run
        future = pool.submit(session.submit, rows(2)).result(LIMIT_S)
        assert is_right(future.result(LIMIT_S), rows(2))


def test_a_frame_that_fails_fails_alone(session, monkeypatch):
    real = Program.wait

    def wait(program):
        real(program)
        if program.chunk.graph.inputs[0].dims[0] == 7:
            raise OutOfMemoryError("vkWaitForFences", "VK_ERROR_OUT_OF_HOST_MEMORY", "none left")

    monkeypatch.setattr(Program, "wait", wait)
    futures = {count: session.submit(rows(count)) for count in (1, 7, 2)}
    with pytest.raises(OutOfMemoryError, match="none left"):
        futures[7].result(LIMIT_S)
    assert all(is_right(futures[n].result(LIMIT_S), rows(n)) for n in (1, 2))


def test_run_async_waits_without_blocking(session):
    async def work():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        found = await asyncio.gather(*(session.run_async(rows(n)) for n in (1, 2, 3)))
        ticking.cancel()
        return found, ticks

    found, ticks = asyncio.run(work())
    assert all(is_right(y, rows(n)) for y, n in zip(found, (1, 2, 3), strict=True)) and ticks > 1


class HeldFrames:
    """Frames that wait until they are let go."""

    def __init__(self, monkeypatch):
        self.go, self.begun, real = threading.Event(), threading.Event(), Executor.run

        def run(executor, *given):
            self.begun.set()
            assert self.go.wait(LIMIT_S)
            return real(executor, *given)

        monkeypatch.setattr(Executor, "run", run)


def test_a_queued_future_can_be_cancelled_and_others_go_on(session, monkeypatch):
    held = HeldFrames(monkeypatch)
    futures = [session.submit(rows(1, n)) for n in range(6)]
    assert held.begun.wait(LIMIT_S)
    assert futures[4].cancel() and not futures[0].cancel()
    held.go.set()
    assert all(is_right(futures[n].result(LIMIT_S), rows(1, n)) for n in (0, 1, 2, 3, 5))
    with pytest.raises(CancelledError):
        futures[4].result()


def test_closing_waits_for_frames_in_flight_and_fails_the_others(device, monkeypatch):
    session = vklab.load(dense()[0], device)
    held = HeldFrames(monkeypatch)
    futures = [session.submit(rows(1, n)) for n in range(streams.IN_FLIGHT + 3)]
    results = session.map([rows(1)], in_flight=1)
    assert held.begun.wait(LIMIT_S)
    threading.Timer(0.05, held.go.set).start()
    session.close()
    done = [future.exception(0) is None for future in futures]
    assert 1 <= sum(done) <= streams.IN_FLIGHT and done == sorted(done, reverse=True)
    assert is_right(futures[0].result(), rows(1, 0))
    with pytest.raises(VklabError, match="closed before this frame began"):
        futures[-1].result()
    for use in (lambda: session.submit(rows(1)), lambda: next(results)):
        with pytest.raises(VklabError, match="this session is closed"):
            use()
    session.close()


def test_a_callback_may_raise_or_close_the_session(device, caplog):
    session = vklab.load(dense()[0], device)
    closed = threading.Event()

    def fail(future):
        raise RuntimeError("the user's own")

    first = session.submit(rows(1))
    first.add_done_callback(fail)
    assert is_right(first.result(LIMIT_S), rows(1))
    session.submit(rows(2)).add_done_callback(lambda _: (session.close(), closed.set()))
    assert closed.wait(LIMIT_S)
    with pytest.raises(VklabError, match="closed"):
        session.run(rows(1))


def test_a_forgotten_session_ends_its_threads_and_frees_its_memory(device, nothing_left):
    before = threading.active_count()
    session = vklab.load(relu((1, 3)), device)
    list(session.map([random_array((1, 3))] * 5, in_flight=3))
    assert threading.active_count() > before
    del session
    gc.collect()
    until(lambda: threading.active_count() == before)
    nothing_left.free_forgotten()


def test_frames_under_upper_bounds_have_reserves_of_their_own(device, nothing_left):
    with vklab.load(dense()[0], device, upper_bounds={"n": 9}) as session:
        for y, n in zip(
            session.map((rows(n) for n in range(1, 10)), in_flight=3), range(1, 10), strict=True
        ):
            assert is_right(y, rows(n))
        with pytest.raises(ModelError, match="upper bound"):
            session.submit(rows(10))


def test_frames_pass_through_host_parts_and_loops(device):
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["c", "w"], ["c2"], "step"),
            helper.make_node("Identity", ["going"], ["going2"]),
        ],
        "body",
        [value("i", (), 7), value("going", (), 9), value("c", (2, 64))],
        [value("going2", (), 9), value("c2", (2, 64))],
    )
    nodes = [
        helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body),
        helper.make_node("Softmax", ["y"], ["z"], "kept"),
    ]
    w = random_array((64, 64)) / 8
    proto = model(nodes, [value("n", (), 7), value("x", (2, 64))], ["z"], {"w": w})
    items = [(np.array(n % 4), rows(2, n)) for n in range(12)]
    with settings.settings(HOST="kept"), vklab.load(proto, device) as session:
        want = [session.run(*item)["z"] for item in items]
        found = session.map(items, in_flight=3)
        assert all(np.array_equal(y["z"], z) for y, z in zip(found, want, strict=True))
        assert "kept" in session.host_reasons


DEVICES = """
import threading, numpy as np, vklab
from support.runs.split_models import *
source, fed = diamond()
one = outputs_of(source, fed)
with nothing_left():
    with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
        for y in session.map([fed] * 40, in_flight=4):
            assert differs(one, y) < 1e-6
    with vklab.load(source, devices=BOTH, replicate=True) as session:
        assert session.plan_reason == "" and differs(one, session.run(fed)) < 1e-6
        from vklab.runtime.program import Program
        real, used = Program.wait, {}
        def wait(program):
            used[program.opened.info.index] = used.get(program.opened.info.index, 0) + 1
            real(program)
        Program.wait = wait
        for y in session.map([fed] * 60):
            assert differs(one, y) < 1e-6
        assert set(used) == set(BOTH) and sum(used.values()) == 60, used
"""


def test_frames_of_a_split_model_and_of_replicas():
    both(DEVICES)
