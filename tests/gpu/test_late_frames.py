"""Frames that the host still works on when their session is closed."""

from __future__ import annotations

import pytest

from support.runs.child import python

pytestmark = pytest.mark.full
HELD = """
import threading, time, numpy as np, vklab
from onnx import helper
from support.graphs.small_models import model, random_array, value
from support.runs.waits import LIMIT_S, until
from vklab.runtime import host, open_devices
from vklab.vulkan import api
nodes = [helper.make_node("Sigmoid", ["x"], ["a"], "slow"),
         helper.make_node("MatMul", ["a", "w"], ["y"], "behind")]
w, x = random_array((64, 32)), random_array((4, 64))
proto = model(nodes, [value("x", (4, 64))], ["y"], {"w": w})
opened = open_devices.open_device(DEVICE)
begun, go, run = threading.Event(), threading.Event(), host.HostChunk.run
def held(host, values):
    begun.set()
    assert go.wait(LIMIT_S)
    return run(host, values)
def close_held():
    session = vklab.load(proto, DEVICE)
    want = session.run(x)["y"]
    list(session.map([x] * 4))
    host.HostChunk.run = held
    future = session.submit(x)
    assert begun.wait(LIMIT_S)
    start = time.monotonic()
    with vklab.settings.settings(TIMEOUT=0.1):  # a busy machine may take longer for what runs
        session.close()
    assert time.monotonic() - start >= 1.2 and not future.done()
    return future, want, opened.allocator.used_bytes
def left():
    kernels = ("VkPipeline", "VkPipelineLayout", "VkDescriptorSetLayout")
    return {k: n for k, n in api.live_handles().items() if k not in kernels}
"""

CLOSED_FIRST = """
before = left(), opened.allocator.used_bytes
with vklab.settings.settings(HOST="slow"):
    future, want, used_bytes = close_held()
    assert used_bytes > w.nbytes
    # Nobody waits for it: the host goes on only after this.
    assert open_devices.open_device(DEVICE) is opened and not opened.free_forgotten()
    assert opened.allocator.used_bytes == used_bytes
    go.set()
    np.testing.assert_array_equal(future.result(LIMIT_S)["y"], want)
until(lambda: (left(), opened.allocator.used_bytes) == before, "not all of it is freed")
assert opened.free_forgotten()
open_devices.close_all()
assert not api.live_handles(), api.live_handles()
"""

DEVICE_CLOSED = """
with vklab.settings.settings(HOST="slow"):
    future, want, _ = close_held()
    with vklab.settings.settings(TIMEOUT=0.1):
        open_devices.close_all()  # waits a while, and leaves the device to the end of the process
    assert opened.is_stuck and not future.done()
    go.set()
    np.testing.assert_array_equal(future.result(LIMIT_S)["y"], want)
"""


@pytest.mark.parametrize("how", [CLOSED_FIRST, DEVICE_CLOSED], ids=["session", "device"])
def test_a_frame_that_the_host_holds_up_keeps_all_that_it_uses(device_index, how):
    python(f"DEVICE = {device_index}\n" + HELD + how)
