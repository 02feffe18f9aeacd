"""Children that answer calls: values, failures, crashes and hangs, each as one sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from support.runs import child as processes
from support.runs.waits import LIMIT_S, hang
from vklab.apps.compare.backend import Refused
from vklab.base import worker
from vklab.errors import SetupError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are sent to children")


def double(state, number):
    """Return twice a number, and count calls; print what is no answer."""
    state["calls"] = state.get("calls", 0) + 1
    print("greetings of a driver", flush=True)
    return 2 * number, state["calls"]


def fail(state, kind):
    """Raise one of the errors that backends raise."""
    raise {
        "refused": Refused("node 'a' is not supported"),
        "absent": SetupError("no library", "apt install it"),
        "failed": RuntimeError("bad\n  luck"),
    }[kind]


def unsendable(state):
    """Return what pickle refuses."""
    return lambda: None


def sleep(state):
    """Sleep."""
    hang()


def crash(state, number):
    """Say a last word, and end by a signal."""
    os.write(2, b"first\nlast word\n")
    os.kill(os.getpid(), number)
    hang()


def child_of_child(state):
    """Start a process that outlives this call, and return its id."""
    process_id = os.fork()
    if not process_id:
        hang()
        os._exit(0)
    return process_id


def test_values_failures_and_state():
    with worker.Worker() as child:
        assert child.call(double, 4, seconds=LIMIT_S) == (8, 1)
        for kind, reason, install in (
            ("refused", "node 'a' is not supported", ""),
            ("absent", "no library", "apt install it"),
            ("failed", "RuntimeError: bad luck", ""),
        ):
            with pytest.raises(worker.Failure) as caught:
                child.call(fail, kind, seconds=LIMIT_S)
            failure = caught.value
            assert (failure.status, failure.reason, failure.install) == (kind, reason, install)
        assert child.call(double, 5, seconds=LIMIT_S) == (10, 2)
        with pytest.raises(worker.Failure, match="pickle"):
            child.call(unsendable, seconds=LIMIT_S)
        with pytest.raises(worker.Failure, match="cannot be sent: .*pickle"):
            child.call(double, lambda: None, seconds=LIMIT_S)
        assert child.call(double, 6, seconds=LIMIT_S) == (12, 3)
        child.close()
        with pytest.raises(worker.Failure, match="the child was closed"):
            child.call(double, 1, seconds=LIMIT_S)


def test_a_crash_names_its_signal_and_the_last_line():
    with worker.Worker() as child:
        with pytest.raises(worker.Failure, match="crashed with SIGSEGV: last word") as caught:
            child.call(crash, 11, seconds=LIMIT_S)
        assert caught.value.status == "crashed"
        with pytest.raises(worker.Failure, match="crashed with SIGSEGV"):
            child.call(double, 1, seconds=LIMIT_S)


def test_a_hang_is_stopped_with_all_that_it_started():
    with worker.Worker() as child:
        grandchild = child.call(child_of_child, seconds=LIMIT_S)
        with pytest.raises(worker.Failure, match=r"no answer to `sleep` in 0.2 s") as caught:
            child.call(sleep, seconds=0.2)
        assert caught.value.status == "timeout"
        processes.wait_until_gone(grandchild)


def fill(state, size_bytes):
    """Take memory, and return how much."""
    return len(bytearray(size_bytes))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_has_a_limit_for_one_call():
    with worker.Worker() as child:
        with pytest.raises(worker.Failure, match="MemoryError") as caught:
            child.call(fill, 1 << 30, seconds=LIMIT_S, memory_bytes=1 << 28)
        assert caught.value.status == "failed" and not caught.value.ended
        assert child.call(fill, 1 << 28, seconds=LIMIT_S) == 1 << 28


PARENT = """
import os, sys
sys.path.append({!r})
import test_worker
from vklab.base import worker
worker.CLOSE_S = 0.1
child = worker.Worker()
print(child.call(test_worker.process_id, seconds=test_worker.LIMIT_S), flush=True)
child.call(test_worker.orphaned, os.getpid(), seconds=1)
"""


def process_id(state):
    """Return the id of the child."""
    return os.getpid()


def orphaned(state, parent):
    """Kill the parent, and hang."""
    os.kill(parent, signal.SIGKILL)
    hang()


def test_a_child_that_hangs_keeps_its_limit_when_its_parent_is_killed():
    done = processes.run(PARENT.format(str(Path(__file__).parent)), PYTHON_SERVER="")
    assert done.returncode == -signal.SIGKILL, done.stderr
    processes.wait_until_gone(int(done.stdout))


def test_a_pool_replaces_what_has_ended():
    with contextlib.closing(worker.Pool(1)) as pool:
        assert pool.call(double, 4, seconds=LIMIT_S) == (8, 1)
        assert pool.call(double, 5, seconds=LIMIT_S) == (10, 2)
        with pytest.raises(worker.Failure, match="crashed with SIGSEGV"):
            pool.call(crash, 11, seconds=LIMIT_S)
        assert pool.call(double, 6, seconds=LIMIT_S) == (12, 1)
