"""Stages of one device wait for each other on the device: no round trip, same results."""

from __future__ import annotations

import pytest

from support.runs.two_drivers import both

START = """
import threading
import numpy as np, vklab
from support.runs.split_models import *
from vklab import settings
from vklab.errors import *
from vklab.runtime.observe import timestamps
from vklab.runtime.program import Program

def ladder(count):
    '''Each rung a of device 0 feeds the next one, and a value b that climbs over both devices.'''
    nodes, place, climbing = [], {}, "x"
    for n in range(count):
        before = f"a{n - 1}" if n else "x"
        nodes += [helper.make_node("Softmax", [before], [f"a{n}"], f"a{n}"),
                  helper.make_node("Mul", [f"a{n}", climbing], [f"b{n}"], f"b{n}"),
                  helper.make_node("Softmax", [f"b{n}"], [f"c{n}"], f"c{n}")]
        place |= {f"a{n}": BOTH[0], f"b{n}": BOTH[1], f"c{n}": BOTH[0]}
        climbing = f"c{n}"
    proto = model(nodes, [value("x", (3, 8))], [climbing, f"a{count - 1}"])
    return proto, {"x": random_array((3, 8))}, place
"""

ORDER = (
    START
    + """
source, fed, place = ladder(6)
one = outputs_of(source, fed)
real = Program.submit
for disabled in (False, True):
    with nothing_left(), settings.settings(DISABLE_DEVICE_ORDER=disabled, DISABLE_FUSION=True):
        with vklab.load(source, devices=BOTH, place=place) as session:
            assert differs(one, session.run(fed)) < 1e-6
            group = next(session.roots[0].path()).runner
            behind = {n: [group.tasks.index(t) for t in task.behind]
                      for n, task in enumerate(group.tasks) if task.behind}
            chunks = session.plan.chunks
            assert all(chunks[n].device == chunks[m].device for n in behind for m in behind[n])
            assert (len(behind) >= 5) == (not disabled), behind
            for _ in range(20):
                assert differs(one, session.run(fed)) < 1e-6
            if disabled:
                continue
            # The device's first stage is waited for only when all behind it are submitted.
            chain, submitted = {0, *(n for n in behind if chunks[n].device == chunks[0].device
                                     and set(chunks[n].predecessors) == set(behind[n]))}, set()
            chain = {n for n in chain if all(m in chain for m in behind.get(n, ()))}
            assert len(chain) >= 5, chain
            ready, wait = threading.Event(), Program.wait
            programs = {id(group.tasks[n].program): n for n in chain}
            def submit(program, *order):
                value = real(program, *order)
                submitted.add(programs.get(id(program)))
                if chain <= submitted: ready.set()
                return value
            def waits(program):
                assert ready.wait(240), submitted
                wait(program)
            Program.submit, Program.wait = submit, waits
            assert differs(one, session.run(fed)) < 1e-6
            Program.submit, Program.wait = real, wait
            # What cannot be submitted is an error; nothing behind it is submitted, nothing hangs.
            for failing in sorted(chain):
                def fails(program, *order):
                    number = programs.get(id(program), -1)
                    assert number <= failing, "what is behind a failure is submitted"
                    if number == failing:
                        raise OutOfMemoryError("vkQueueSubmit", "VK_ERROR_OUT_OF_HOST_MEMORY")
                    return real(program, *order)
                Program.submit = fails
                try:
                    session.run(fed)
                    raise AssertionError("the failure is lost")
                except OutOfMemoryError as error:
                    assert "in chunk " in str(error)
                Program.submit = real
                assert differs(one, session.run(fed)) < 1e-6
"""
)


@pytest.mark.parametrize("validate", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_stages_of_one_device_are_submitted_without_a_round_trip(validate):
    both(ORDER, VKLAB_VALIDATE=validate)


@pytest.mark.full
def test_replay_off_and_frames_in_flight_give_the_same():
    both(
        START
        + """
source, fed, place = ladder(4)
one = outputs_of(source, fed)
for switch in ({}, {"DISABLE_REPLAY": True}):
    with nothing_left(), settings.settings(DISABLE_FUSION=True, **switch):
        with vklab.load(source, devices=BOTH, place=place) as session:
            assert all(differs(one, f) < 1e-6 for f in session.map([fed] * 12, in_flight=3))
            assert differs(one, session.run(fed)) < 1e-6
"""
    )


def test_what_reads_another_programs_output_begins_with_a_barrier():
    both(
        START
        + """
from vklab.vulkan.command import CommandBuffer
calls = []
for name in ("begin", "barrier", "dispatch", "copy_buffer", "write_timestamp"):
    def noted(commands, *given, name=name, real=getattr(CommandBuffer, name)):
        calls.append((name, *given))
        return real(commands, *given)
    setattr(CommandBuffer, name, noted)
source, fed, place = ladder(3)
everywhere = ("compute_shader", "transfer")
with vklab.load(source, devices=BOTH, place=place) as session:
    session.run(fed)
    tasks = next(session.roots[0].path()).runner.tasks
    assert any(task.behind for task in tasks)
    for task in tasks:
        calls.clear()
        with timestamps.timed(task.program):
            pass
        second = calls[1]
        assert (second == ("barrier", everywhere, everywhere)) or not task.behind, calls[:3]
"""
    )
