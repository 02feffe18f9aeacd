"""Spread models when calls fail, and when many threads run them: clear errors, nothing left."""

from __future__ import annotations

import pytest

from support.runs.two_drivers import both

START = """
import numpy as np, vklab
from support.runs.split_models import *
from vklab.errors import *
"""


@pytest.mark.full
def test_every_call_of_a_run_that_fails_is_a_clear_error_and_nothing_is_left():
    both(
        START
        + """
from support.fakes.failing_calls import FailingCalls
source, fed = diamond()
def load():
    return vklab.load(source, devices=BOTH, place=DIAMOND)
with nothing_left(), FailingCalls() as calls:
    assert calls.every(load, fed) == 15  # five stages, each reset, submitted and waited for
"""
    )


RUNS = (
    START
    + """
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
)


@pytest.mark.parametrize("count", [320, pytest.param(10_000, marks=pytest.mark.slow)])
def test_threads_run_one_spread_session(count):
    both(RUNS, count)
