"""Queries, keys and values by one dispatch: on CPU drivers taken for GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from support.language import llama_models
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.llm.decode.decoder import Decoder
from vklab.runtime import open_devices
from vklab.types import DeviceInfo


@pytest.fixture(autouse=True)
def as_gpu(device, monkeypatch):
    """Take the device for a GPU; skip one without dot products of bytes."""
    if "shaderIntegerDotProduct" not in open_devices.open_device(device).info.features:
        pytest.skip("the driver has no dot products of bytes")
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))


@pytest.mark.full
@pytest.mark.parametrize("name", seeds("Q4_K", "Q8_0", "F16", "Q6_K", "Q5_0", "F32"))
def test_queries_keys_and_values_in_one_dispatch_are_those_of_three(name, device):
    file, found = llama_models.tiny_model(width=256, hidden=512, kinds={"blk": name}), []
    for left_out in ("join_rows", ""):
        with (
            settings.settings(DISABLE_PASSES=left_out),
            Decoder(file, device, context=64, batch=3) as decoder,
        ):
            decoder.prompt([[3, 1, 4], [1, 5], [9]])
            decoder.step([2, 6, 5])
            found.append(decoder.logits)
    assert (found[0] == found[1]).all() and np.isfinite(found[0]).all()
