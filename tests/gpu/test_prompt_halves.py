"""Prompts as halves, on CPU drivers taken for GPUs with matrix units."""

from __future__ import annotations

import llama_models
import numpy as np
import pytest

from vklab import settings
from vklab.llm.decoder import Decoder
from vklab.plan import block_units
from vklab.runtime import open_devices
from vklab.types import DeviceInfo

APART = "round_rows, unpack_ahead"


@pytest.mark.parametrize("kinds", [{}, {"attn_v": "Q4_0", "ffn": "F16"}])
def test_rows_rounded_where_they_are_written_are_the_same(kinds, device, monkeypatch):
    if "shaderFloat16" not in open_devices.open_device(device).info.features:
        pytest.skip("the driver has no halves")
    monkeypatch.setattr(block_units, "has_matrices", lambda info: True)
    monkeypatch.setattr(DeviceInfo, "is_cpu", property(lambda info: False))
    file = llama_models.tiny_model(width=256, hidden=512, kinds=kinds)
    tokens = [int(i) for i in np.random.default_rng(0).integers(0, 45, 40)]
    found, counts = {}, {}
    for left_out in ("", APART):
        with settings.settings(DISABLE_PASSES=left_out), Decoder(file, device) as decoder:
            decoder.prompt(tokens)
            found[left_out] = decoder.logits
            chunk = decoder.model.binding(32).program.chunk
            counts[left_out] = len(chunk.dispatches), len(chunk.barriers)
            kernels = {dispatch.kernel for dispatch in chunk.dispatches}
            assert "unpack_units" in kernels and "matmul_blocks" not in kernels
    assert (found[""] == found[APART]).all()
    assert counts[""][0] == counts[APART][0] - 4 * 2 and counts[""][1] < counts[APART][1] - 8 * 2
    expected = llama_models.logits(file, tokens)[-1]
    assert abs(found[""][0] - expected).max() < 5e-3 * abs(expected).max()
