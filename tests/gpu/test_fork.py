"""Children that `os.fork` makes: clear errors from inherited sessions, new ones, a clean end."""

from __future__ import annotations

import os

import pytest

import vklab
from support.runs.child import python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Load and run a model, fork, and tell what the child said and how it ended.
CODE = """
import os, signal, sys, threading, time, warnings
import numpy as np, vklab
from support.graphs.small_models import relu
from vklab.runtime import open_devices
from vklab.shader import compiler, modules
from vklab.vulkan import api

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
X = np.array([[1, -2, 3]], np.float32)
device = int(sys.argv[1])
session = vklab.load(relu((1, 3)), device)
session.run(X)
done = session.submit(X)  # starts the threads of frames
done.result()

def new_session():
    with vklab.load(relu((1, 3)), device) as new:
        return new.run(X)["y"].tolist(), new.submit(X).result()["y"].tolist()

def forked(call):
    sys.stdout.flush()  # or the child would print the parent's lines again
    child = os.fork()
    if child == 0:
        try:
            print(call())
        except vklab.VklabError as error:
            print(type(error).__name__, error)
        sys.exit(7)  # through the exit handlers of Python and of the driver
    late = time.monotonic() + 30
    while time.monotonic() < late:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return print("status", os.waitstatus_to_exitcode(status))
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("the child did not end")
"""
# The parent's session works on.
AFTER = "\nassert session.run(X)['y'].tolist() == [[1, 0, 3]]"
ERROR = (
    "VklabError this session belongs to the process that forked this one: load models in the "
    "child only, or start processes with multiprocessing.get_context('spawn')"
)


def in_child(device: int, call: str, before: str = "") -> list[str]:
    """Return the lines that a child printed, and how it ended."""
    return python(f"{CODE}\n{before}\nforked(lambda: {call}){AFTER}", device).splitlines()


@pytest.fixture
def willing_index(device_index):
    """Return a device whose driver lets a forked child use it; NVIDIA's does not.

    SwiftShader opens it, but what the child submits waits for threads that stay in the parent.
    """
    if "SwiftShader" in vklab.devices()[device_index].driver:
        pytest.skip("work of a forked child may never run: SwiftShader's threads are the parent's")
    in_willing_child(device_index, "new_session()")
    return device_index


def in_willing_child(device: int, call: str, before: str = "") -> list[str]:
    """Return what `in_child` does; skip where the driver refuses the child, as it may each time."""
    told = in_child(device, call, before)
    if told[0].startswith("SetupError"):
        assert "spawn" in told[-2] and told[-1] == "status 7"
        pytest.skip(f"the driver refuses a forked child, and the child is told: {told[0]}")
    return told


def test_an_inherited_session_names_the_fork(device_index):
    uses = ["run(X)", "submit(X)", "profile(X)", "devices", "plan", "check({'x': X})"]
    before = """
def error(use):
    try:
        return eval(f"session.{use}")
    except vklab.VklabError as error:
        return f"{type(error).__name__} {error}"
"""
    call = f"'|'.join(map(error, {uses!r}))"
    assert in_child(device_index, call, before) == ["|".join([ERROR] * len(uses)), "status 7"]


@pytest.mark.full
def test_an_inherited_session_may_be_closed_or_dropped(device_index):
    call = "(session.close(), session.close(), globals().pop('session'), api.live_handles())"
    assert in_child(device_index, call)[-1] == "status 7"
    call = "(open_devices.close_all(), api.live_handles())"
    assert in_child(device_index, call) == ["(None, {})", "status 7"]


@pytest.mark.full
def test_an_inherited_device_names_the_fork(device_index):
    told, end = in_child(
        device_index, "opened.command_pool()", "opened = open_devices.open_device(device)"
    )
    assert told.startswith("VklabError the open device ") and "spawn" in told
    assert end == "status 7"


BOUND = """
bound = session.bind(X)
y = bound.run()["y"].numpy()
"""


def test_an_inherited_binding_names_the_fork(device_index):
    told = ERROR.replace("session", "binding", 1)
    assert in_child(device_index, "bound.run()", BOUND) == [told, "status 7"]


@pytest.mark.full
def test_an_inherited_binding_may_be_closed_or_dropped(device_index):
    for call in (
        "bound.close()",
        "(session.close(), bound.close())",
        "(globals().pop('bound'), globals().pop('y'), api.live_handles())",
    ):
        assert in_child(device_index, call, BOUND)[-1] == "status 7"


@pytest.mark.full
def test_a_frame_in_flight_ends_in_the_parent_only(device_index):
    before = """
from vklab.runtime.many import frames
frame = frames._Future()  # like one whose thread has not come to its end
"""
    told, end = in_child(device_index, "frame.result()", before)
    assert told == ERROR.replace("session", "frame")
    assert end == "status 7"


@pytest.mark.full
def test_a_child_loads_models_of_its_own(willing_index):
    told = ["([[1.0, 0.0, 3.0]], [[1.0, 0.0, 3.0]])", "status 7"]
    assert in_willing_child(willing_index, "new_session()") == told
    # a grandchild, after the child used its own device
    again = in_willing_child(willing_index, "(new_session(), forked(new_session))[0]")
    assert again == [told[0], told[1], told[0], told[1]]


@pytest.mark.full
def test_a_driver_that_refuses_a_child_is_reported(device_index):
    before = """
def refuse(self, *arguments):
    raise vklab.VulkanError("vkCreateDevice", "VK_ERROR_INITIALIZATION_FAILED", "refused")
open_devices.Device._create = refuse
"""
    told, _, end = in_child(device_index, "new_session()", before)
    assert told.startswith("SetupError ") and "VK_ERROR_INITIALIZATION_FAILED: refused" in told
    assert end == "status 7"


@pytest.mark.full
def test_locks_that_another_thread_held_are_free(willing_index):
    before = """
held = threading.Event()
def hold():
    with open_devices._lock, compiler._lock, modules._lock, session._lock:
        held.set()
        time.sleep(1)
threading.Thread(target=hold).start()
held.wait()
"""
    call = "(compiler._memory.clear(), new_session(), session.close(), session.run(X))"
    with_cold_cache = before + "\nos.environ['VKLAB_DISABLE_CACHE'] = '1'"
    assert in_willing_child(willing_index, call, with_cold_cache) == [ERROR, "status 7"]


@pytest.mark.full
@pytest.mark.parametrize("pool", ["executor", "pool"])
def test_pools_of_forked_processes(willing_index, pool):
    told = python(
        f"""{CODE}
import concurrent.futures, multiprocessing
def old(x):
    try:
        return session.run(x)
    except vklab.VklabError as error:
        return type(error).__name__
def new(x):
    return new_session()[0]
fork = multiprocessing.get_context("fork")
pools = dict(executor=lambda: concurrent.futures.ProcessPoolExecutor(2, fork),
             pool=lambda: fork.Pool(2))
with pools["{pool}"]() as pool:
    print(*pool.map(old, [X]), *pool.map(new, [X]))
{AFTER}""",
        willing_index,
    )
    assert told == "VklabError [[1.0, 0.0, 3.0]]\n"


@pytest.mark.full
def test_onnxruntime_lets_a_child_end(device_index):
    call = "session.reference({'x': X})['y'].tolist()"
    before = "session.reference({'x': X})  # in threads that the child does not have"
    assert in_child(device_index, call, before) == ["[[1.0, 0.0, 3.0]]", "status 7"]


@pytest.mark.full
@pytest.mark.parametrize("host", ["", "Relu"])
def test_children_end_though_their_parent_has_run_onnxruntime(device_index, host):
    before = f"""
import os
os.environ["VKLAB_HOST"] = {host!r}
warnings.simplefilter("ignore")
session = vklab.load(relu((1, 3)), device)
assert session.check({{'x': X}}).passed
for _ in range(4):  # such a child hung five times out of six
    forked(lambda: "")"""
    assert in_child(device_index, "''", before) == ["", "status 7"] * 5
