"""Weights read ahead beside attention: which, how much, and that results stay as they are."""

from __future__ import annotations

import llama_models
import numpy as np
import pytest

from vklab import settings
from vklab.llm.decoder import Decoder
from vklab.plan.tuning import read_ahead
from vklab.runtime import open_devices
from vklab.types import DeviceInfo, Dispatch

TOKENS = [3, 1, 4, 1, 5, 9]


@pytest.fixture(autouse=True)
def as_gpu(device, monkeypatch):
    """Take the device for a GPU, whose products read blocks as units."""
    if "shaderIntegerDotProduct" not in open_devices.open_device(device).info.features:
        pytest.skip("the driver has no dot products of bytes")
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


def stepped(device, most, monkeypatch):
    """Return the logits of a step, and its dispatches, with so many bytes to read ahead."""
    monkeypatch.setattr(read_ahead, "CACHES", {"": most} if most else {})
    with Decoder(llama_models.tiny_model(), device, context=64) as decoder:
        decoder.prompt(TOKENS)
        decoder.step(2)
        steps = decoder.model.binding(1).program.chunk.steps
        return decoder.logits, [step for step in steps if isinstance(step, Dispatch)]


def test_weights_are_read_beside_attention(device, monkeypatch):
    plain, without = stepped(device, 0, monkeypatch)
    found, steps = stepped(device, 1 << 30, monkeypatch)
    assert (plain == found).all() and np.isfinite(found).all()
    kernels = [step.kernel for step in steps]
    assert sorted(set(kernels) - {"read_ahead"}) == sorted({step.kernel for step in without})
    assert len(kernels) - kernels.count("read_ahead") == len(without)
    groups = "".join({"read_ahead": "r", "cache_attention": "a"}.get(name, ".") for name in kernels)
    assert groups.count("ar") == groups.count("a") == 2 and ".r" not in groups
    for first, piece in enumerate(groups.split("a")[1:]):
        ahead = piece.index(".")
        start = [n for n, letter in enumerate(groups) if letter == "a"][first] + 1
        own = {dict(step.reads)["b_buffer"].name for step in steps[start : start + ahead]}
        after = steps[start + ahead : start + len(piece)]
        wanted = {info.name for step in after for name, info in step.reads
                  if name in read_ahead.WEIGHTS and step.kernel == "matvec_units"}  # fmt: skip
        assert own == wanted and wanted


def test_no_more_than_the_cache_holds_is_read(device, monkeypatch):
    most = 4096
    _, steps = stepped(device, most, monkeypatch)
    sizes = [dict(step.push)["sectors"] * read_ahead.SECTOR for step in steps
             if step.kernel == "read_ahead"]  # fmt: skip
    assert 0 < sum(sizes) <= 2 * most


def test_several_steps_leave_no_memory_idle(device, monkeypatch):
    monkeypatch.setattr(read_ahead, "CACHES", {"": 1 << 30})
    with Decoder(llama_models.tiny_model(), device, context=64) as decoder:
        steps = decoder.model.binding(8).program.chunk.steps
    assert all(getattr(step, "kernel", "") != "read_ahead" for step in steps)


def test_a_switch_and_unknown_devices_leave_them_out(device, monkeypatch):
    monkeypatch.setattr(read_ahead, "CACHES", {"No such GPU": 1 << 30})
    for switches in ({}, {"DISABLE_READ_AHEAD": True}):
        with settings.settings(**switches):
            with Decoder(llama_models.tiny_model(), device, context=64) as decoder:
                steps = decoder.model.binding(1).program.chunk.steps
        assert all(getattr(step, "kernel", "") != "read_ahead" for step in steps)
        monkeypatch.setattr(read_ahead, "CACHES", {"": 1 << 30})
