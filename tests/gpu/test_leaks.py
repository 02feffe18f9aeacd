"""Nothing grows: handles, device memory and the process itself, over many loads and runs."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import vklab
from support.graphs.small_models import DATA, relu
from support.runs.child import python
from vklab.runtime import open_devices
from vklab.vulkan import api

CYCLES = 50
LOADS = 20


def count(opened):
    return api.live_handles(), opened.allocator.used_bytes, opened.allocator.reserved_bytes


@pytest.mark.full
def test_loads_and_closes_leave_nothing(device_index):
    images = np.load(DATA / "digits.npz")["images"][:4]
    opened = open_devices.open_device(device_index)
    seen = []
    for _ in range(LOADS):
        with vklab.load(DATA / "digits_cnn.onnx", device_index) as session:
            session.run(images)
            session.run(images[:1])
            session.profile(images, repeats=1)
        seen.append(count(opened))
    assert seen[0] == seen[-1]


def test_fifty_runs_leave_nothing(device_index):
    images = np.load(DATA / "digits.npz")["images"]
    opened = open_devices.open_device(device_index)
    with vklab.load(DATA / "digits_cnn.onnx", device_index) as session:
        # More sizes than are kept: old programs go.
        seen = []
        for number in range(CYCLES):
            session.run(images[: number % 10 + 1])
            seen.append(count(opened)[0])
    assert seen[20] == seen[-1]


def test_forgotten_sessions_are_freed_by_the_next_load(device_index):
    opened = open_devices.open_device(device_index)
    vklab.load(relu((2, 3)), device_index).close()
    before = count(opened)
    for _ in range(3):
        vklab.load(relu((2, 3)), device_index)
    gc.collect()
    assert count(opened) != before
    vklab.load(relu((2, 3)), device_index).close()
    assert count(opened) == before


def test_models_that_do_not_load_leave_nothing(device_index):
    opened = open_devices.open_device(device_index)
    before = count(opened)
    for _ in range(5):
        with pytest.raises(vklab.ModelError):
            vklab.load(b"nonsense", device_index)
        with pytest.raises(vklab.VklabError, match="bytes"):
            vklab.load(relu((1 << 40,)), device_index)
    assert count(opened) == before


RSS = """
import gc, sys
import numpy as np, vklab
from support.graphs.small_models import DATA
from vklab.runtime import open_devices
from vklab.vulkan import api
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
images = np.load(DATA / "digits.npz")["images"][:4]
def cycle():
    with vklab.load(DATA / "digits_cnn.onnx", int(sys.argv[1])) as session:
        for _ in range(5):
            session.run(images)
for _ in range(10):
    cycle()
before = resident()
for _ in range(50):
    cycle()
grown = resident() - before
open_devices.close_all()
assert api.live_handles() == {}
print(grown)
"""


@pytest.mark.full
def test_the_process_does_not_grow(device_index):
    import sys

    if sys.platform != "linux":
        pytest.skip("resident memory is read from /proc")
    # 0.3 MiB a cycle would be 15 MiB; the model alone has 0.2 MiB of weights.
    assert int(python(RSS, device_index)) < 8 << 20


def test_all_handles_go_with_the_devices(device_index):
    python(
        """
import sys
import numpy as np, vklab
from support.graphs.small_models import relu
from vklab.runtime import open_devices
from vklab.vulkan import api
for _ in range(3):
    with vklab.load(relu((1, 3)), int(sys.argv[1])) as session:
        session.run(np.zeros((1, 3), np.float32))
    open = vklab.load(relu((1, 3)), int(sys.argv[1]))
    open_devices.close_all()
    assert api.live_handles() == {}, api.live_handles()
    try:
        open.run(np.zeros((1, 3), np.float32))
    except vklab.VklabError:
        continue
    raise SystemExit("a session went on without its device")
""",
        device_index,
    )


def test_an_instance_outlives_a_device_whose_end_was_interrupted(device_index):
    """The driver would read what is gone; the process ends in peace, and says what is left."""
    said = python(
        """
import sys, vklab
from support.graphs.small_models import DATA
from vklab.runtime import open_devices
from vklab.vulkan import api
from vklab.vulkan.device import Device
vklab.load(DATA / "digits_cnn.onnx", int(sys.argv[1])).close()
def interrupted(device):
    raise KeyboardInterrupt
real, Device._destroy = Device._destroy, interrupted
try:
    open_devices.close_all()
except KeyboardInterrupt:
    Device._destroy = real
    open_devices.close_all()
    print(api.live_handles())
    vklab.load(DATA / "digits_cnn.onnx", int(sys.argv[1])).close()
""",
        device_index,
    )
    assert said == "{'VkDevice': 1, 'VkInstance': 1}\n"
