"""Prompts as halves: on GPUs with matrix units, and on CPU drivers taken for such."""

from __future__ import annotations

import numpy as np
import pytest

import vklab
from support.graphs.block_cases import moderate_blocks
from support.graphs.block_graphs import gated_graph
from support.language import llama_models
from vklab import settings
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.quantization import blocks
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


@pytest.mark.parametrize(("rows", "count"), [(48, 112), (128, 256)])
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "Q6_K", "Q4_0"])
def test_a_gate_is_computed_beside_what_it_gates(name, rows, count, device):
    """One product has the rows of both matrices, on devices with matrix units."""
    if not block_units.has_matrices(open_devices.open_device(device).info):
        pytest.skip("the driver has no cooperative matrices of halves")
    x = np.random.default_rng(0).standard_normal((1, rows, 512)).astype(np.float32)
    graph, scale = gated_graph(name, 512, x, count=count)
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        found = session.run({"x": x})["y"]
        kernels = [step.kernel for step in session.plan.dispatches]
    assert kernels[-1] == "matmul_cooperative" and kernels.count("unpack_units") == 1
    normal = x[0] * scale / np.sqrt((x[0].astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    weights = [blocks.dequantize(name, moderate_blocks(name, count, 512, seed)) for seed in (0, 1)]
    halves = [
        each.reshape(-1, 512).astype(np.float16).astype(np.float64) for each in (normal, *weights)
    ]
    up, gate = (halves[0] @ each.T for each in halves[1:])
    expected = gate * up / (1 + np.exp(-gate))
    assert abs(found[0] - expected).max() < 2e-3 * abs(expected).max()
