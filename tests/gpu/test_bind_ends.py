"""Bindings that are closed, forgotten, inherited or outlived by arrays: nothing is left."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import vklab
from support.graphs.small_models import relu
from support.graphs.state_models import cell, step_inputs
from support.runs.child import python
from vklab.errors import VklabError
from vklab.runtime import open_devices
from vklab.vulkan import api

pytestmark = pytest.mark.full
MEMORY = ("VkBuffer", "VkDeviceMemory", "VkCommandBuffer", "VkCommandPool", "VkFence",
          "VkDescriptorPool")  # fmt: skip


def count(opened):
    live = api.live_handles()
    return {kind: live.get(kind, 0) for kind in MEMORY}, opened.allocator.used_bytes


@pytest.fixture
def opened(device):
    """Return an open device; a test leaves as many handles and bytes on it as it found."""
    found = open_devices.open_device(device)
    before = count(found)
    yield found
    gc.collect()
    open_devices.open_device(device)  # frees what was forgotten
    assert count(found) == before


def bind(session):
    return session.bind(step_inputs("cell", 0), state={"h": "h2"})


@pytest.mark.parametrize("first", ["session", "binding"])
@pytest.mark.parametrize("frames", [False, True])
def test_a_session_closes_its_bindings(opened, device, first, frames):
    session = vklab.load(cell(), device)
    if frames:
        session.submit({**step_inputs("cell", 0), "h": step_inputs("cell", 1)["x"]}).result()
    bound, other = bind(session), bind(session)
    bound.run()
    used = count(opened)[1]
    (session if first == "session" else bound).close()
    assert count(opened)[1] < used and bound not in opened.sessions
    for use in (bound.run, bound.outputs["y"].numpy, bound.inputs["h"].__setitem__):
        with pytest.raises(VklabError, match="this binding is closed, or its session: bind again"):
            use(..., 0) if use.__name__ == "__setitem__" else use()
    assert "closed" in repr(bound)
    if first == "binding":
        other.run()
        session.close()
    bound.close()
    other.close()
    with pytest.raises(VklabError, match="this session is closed"):
        bind(session)


@pytest.mark.parametrize("kept", ["session", "binding", "tensor", "nothing"])
def test_what_is_forgotten_is_freed(opened, device, kept):
    session = vklab.load(cell(), device)
    bound = bind(session)
    y = bound.run()["y"]
    if kept != "session":
        del session
    if kept != "binding":
        del bound
    gc.collect()
    if kept == "binding":
        bound.run()  # the binding keeps its session
        bound.close()
    elif kept == "tensor":
        vklab.load(relu(), device).close()
        with pytest.raises(VklabError, match="this binding is closed"):
            y.numpy()
    elif kept == "session":
        bind(session).close()
        session.close()


def test_an_array_outlives_its_binding(opened, device):
    torch = pytest.importorskip("torch")
    with vklab.load(cell(), device) as session:
        before = count(opened)
        with bind(session) as bound:
            tensor = bound.run()["h2"]
            is_view, h = tensor.is_view, torch.from_dlpack(tensor)
            expected = h.clone()
        # A view keeps the memory; of memory that the host cannot map there is only a copy.
        assert (count(opened) != before) == is_view
        with bind(session) as other:  # which would get freed memory
            other.run(step_inputs("cell", 7))
            assert torch.equal(h, expected)
        del h
        vklab.load(relu(), device).close()
        assert count(opened) == before


def test_a_binding_that_is_not_made_leaves_nothing(opened, device, monkeypatch):
    from vklab.runtime.bound import binding, memory

    with vklab.load(cell(), device) as session:
        before = count(opened)
        for owner, name in ((binding.DeviceTensor, "__setitem__"), (memory.BufferPool, "fit")):

            def fail(*given):
                raise vklab.OutOfMemoryError("vkAllocateMemory", "VK_ERROR", "none left")

            with monkeypatch.context() as patch, pytest.raises(vklab.OutOfMemoryError):
                patch.setattr(owner, name, fail)
                bind(session)
            gc.collect()
            assert count(opened) == before


def test_fifty_bindings_leave_nothing(opened, device):
    with vklab.load(cell(), device) as session:
        bind(session).close()
        before = count(opened)
        for number in range(50):
            with bind(session) as bound:
                for step in range(number % 3):
                    bound.run(step_inputs("cell", step))
        assert count(opened) == before


def test_closing_the_devices_closes_bindings(device_index):
    python(
        """
import sys
import numpy as np, vklab
from support.graphs.small_models import relu
from support.graphs.state_models import cell, step_inputs
from vklab.runtime import open_devices
from vklab.vulkan import api
for _ in range(3):
    session = vklab.load(cell(), int(sys.argv[1]))
    bound = session.bind(step_inputs("cell", 0), state={"h": "h2"})
    kept = session.bind(step_inputs("cell", 0), state={"h": "h2"})
    array = kept.run()["h2"].numpy()
    kept.close()
    bound.run()
    open_devices.close_all()
    assert api.live_handles() == {}, api.live_handles()
    try:
        bound.run()
    except vklab.VklabError as error:
        assert "closed" in str(error)
        continue
    raise SystemExit("a binding went on without its device")
""",
        device_index,
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_a_run_ahead_waits_for_the_one_before_on_the_device(device_index, ahead):
    x = np.ones((3, 5), np.float32)
    with vklab.load(relu((3, 5)), device_index) as session, session.bind(x, ahead=ahead) as bound:
        bound.run()
        first = bound._home.recording().chunk.barriers[0]
    assert (first.before == 0) == ahead
