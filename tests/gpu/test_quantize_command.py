"""`vklab quantize` on the digits: few flips, integer kernels, less memory for weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_models import DATA

import vklab
from vklab import cli, settings

DIGITS = np.load(DATA / "digits.npz")
HELD_OUT, MODEL = DIGITS["images"][DIGITS["held_out"]], DATA / "digits_cnn.onnx"
MOST_FLIPS = 3


def quantized(folder, capsys, *options):
    data = folder / "data.npz"
    np.savez(data, image=DIGITS["images"][~DIGITS["held_out"]][::30])
    path = folder / "quantized.onnx"
    line = ["quantize", str(MODEL), "-o", str(path), "--json", "--calibrate", str(data), *options]
    assert cli.main(line) == 0
    return path, json.loads(capsys.readouterr().out)


def run(path, device):
    with settings.settings(FALLBACK=False), vklab.load(path, device) as session:
        return session.run(HELD_OUT)["logits"].argmax(1), session.plan


def test_digits_in_codes(device_index, tmp_path, capsys):
    path, report = quantized(tmp_path, capsys, "--int8")
    exact, plan = run(MODEL, device_index)
    classes, ours = run(path, device_index)
    assert (exact != classes).sum() <= MOST_FLIPS
    assert report["saved_bytes"] > 70_000 and report["drop"] <= 0.02
    assert all(layer["sqnr_db"] > 30 for layer in report["layers"])
    kernels = [dispatch.kernel for dispatch in ours.dispatches]
    assert kernels == ["pack_words", "conv_words", "pool_words", "conv_words", "pool_words",
                       "conv_words", "conv_words"]  # fmt: skip
    # Weights stay in 8 bits; without the pass they are widened.
    bytes_of = [each.summary()["weights_bytes"] for each in (plan, ours)]
    assert bytes_of[1] < bytes_of[0] / 3.5


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    ("--int8", "--method", "percentile"), ("--int8", "--method", "entropy"),
    ("--int8", "--symmetric", "--per-tensor"), ("--int8", "--keep", "Gemm"),
    ("--int8", "--max-drop", "0"), ("--nbits", "8"), ("--nbits", "4"),
], ids=" ".join)  # fmt: skip
def test_digits_in_every_form(device, tmp_path, capsys, options):
    path, _ = quantized(tmp_path, capsys, *options)
    exact, _ = run(MODEL, device)
    classes, _ = run(path, device)
    assert (exact != classes).sum() <= MOST_FLIPS
