"""Children of backends: values, failures, crashes and hangs, each as one sentence."""

from __future__ import annotations

import os
import time

import pytest

from vklab import worker
from vklab.backends.backend import Refused
from vklab.errors import SetupError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are sent to children")


def double(state, number):
    """Return twice a number, and count calls; print what is no answer."""
    state["calls"] = state.get("calls", 0) + 1
    print("greetings of a driver", flush=True)
    return 2 * number, state["calls"]


def fail(state, kind):
    """Raise one of the errors that backends raise."""
    raise {"refused": Refused("node 'a' is not supported"),
           "absent": SetupError("no library", "apt install it"),
           "failed": RuntimeError("bad\n  luck")}[kind]  # fmt: skip


def unsendable(state):
    """Return what pickle refuses."""
    return lambda: None


def sleep(state, seconds):
    """Sleep."""
    time.sleep(seconds)


def crash(state, signal):
    """Say a last word, and end by a signal."""
    os.write(2, b"first\nlast word\n")
    os.kill(os.getpid(), signal)
    time.sleep(5)


def child_of_child(state):
    """Start a process that outlives this call, and return its id."""
    process_id = os.fork()
    if not process_id:
        time.sleep(60)
        os._exit(0)
    return process_id


def test_values_failures_and_state():
    with worker.Worker() as child:
        assert child.call(double, 4, seconds=30) == (8, 1)
        for kind, reason, install in (("refused", "node 'a' is not supported", ""),
                                      ("absent", "no library", "apt install it"),
                                      ("failed", "RuntimeError: bad luck", "")):  # fmt: skip
            with pytest.raises(worker.Failure) as caught:
                child.call(fail, kind, seconds=30)
            failure = caught.value
            assert (failure.status, failure.reason, failure.install) == (kind, reason, install)
        assert child.call(double, 5, seconds=30) == (10, 2)
        with pytest.raises(worker.Failure, match="pickle"):
            child.call(unsendable, seconds=30)
        with pytest.raises(worker.Failure, match="cannot be sent: .*pickle"):
            child.call(double, lambda: None, seconds=30)
        assert child.call(double, 6, seconds=30) == (12, 3)
        child.close()
        with pytest.raises(worker.Failure, match="the child was closed"):
            child.call(double, 1, seconds=30)


def test_a_crash_names_its_signal_and_the_last_line():
    with worker.Worker() as child:
        with pytest.raises(worker.Failure, match="crashed with SIGSEGV: last word") as caught:
            child.call(crash, 11, seconds=30)
        assert caught.value.status == "crashed"
        with pytest.raises(worker.Failure, match="crashed with SIGSEGV"):
            child.call(double, 1, seconds=30)


def test_a_hang_is_stopped_with_all_that_it_started():
    with worker.Worker() as child:
        grandchild = child.call(child_of_child, seconds=30)
        start = time.monotonic()
        with pytest.raises(worker.Failure, match=r"no answer to `sleep` in 0.2 s") as caught:
            child.call(sleep, 60, seconds=0.2)
        assert caught.value.status == "timeout"
        assert time.monotonic() - start < 5
        while is_running(grandchild):  # until the kernel has ended it
            assert time.monotonic() - start < 10
            time.sleep(0.01)


def is_running(process_id):
    """Tell whether a process is there and no zombie."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
