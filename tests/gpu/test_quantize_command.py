"""`vklab quantize` on the digits: few flips, integer kernels, less memory for weights."""

from __future__ import annotations

import json
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime import quantization

import vklab
from support.graphs.small_models import DATA
from vklab import settings
from vklab.apps import cli
from vklab.apps.compare import models
from vklab.apps.quantization import codes, histogram, quantize

DIGITS = np.load(DATA / "digits.npz")
HELD_OUT, MODEL = DIGITS["images"][DIGITS["held_out"]], DATA / "digits_cnn.onnx"
MOST_FLIPS = 3
WORDS = {"conv_words", "depthwise_words", "matvec_words", "words_tiled"}


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
    assert len(kernels) == 7 and kernels[::2][:3] == ["pack_words", "pool_words", "pool_words"]
    assert {*kernels} - {"pack_words", "pool_words"} <= WORDS
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


def exported(module, images, path):
    """Write a torch module as ONNX with any batch."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter of TorchScript is deprecated
        torch.onnx.export(
            module,
            (images[:2],),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", [*histogram.METHODS, "the ranges of each run"])
def test_a_trained_mobilenet_keeps_its_classes(device, tmp_path, method):
    module, (images,) = models.mobilenet_v2_half(None)
    exported(module, images, tmp_path / "float.onnx")
    proto, images = onnx.load(tmp_path / "float.onnx"), images.numpy()

    def classes(model):
        with settings.settings(FALLBACK=False), vklab.load(model, device) as session:
            made = [
                session.run(images[start : start + 64])["logits"].argmax(1)
                for start in range(0, len(images), 64)
            ]
            return np.concatenate(made), {each.kernel for each in session.plan.dispatches}

    exact, _ = classes(proto)
    assert (exact == DIGITS["labels"][DIGITS["held_out"]]).sum() >= 351
    if method in histogram.METHODS:
        data = {"image": models.digit_images(256, held_out=False)}
        quantised = quantize.quantize(proto, quantize.Choice(method=method), data)
    else:
        quantised = quantize.quantize(proto)
    assert not any(layer.kept for layer in quantised.layers)
    ours, kernels = classes(quantised.proto)
    assert (ours != exact).sum() <= MOST_FLIPS
    assert not kernels & {"conv", "conv_nd", "matmul", "matmul_integer"}, kernels


class Samples(quantization.CalibrationDataReader):
    """Give ONNX Runtime the calibration data, batch by batch."""

    def __init__(self, images):
        self.left = [{"image": images[start : start + 8]} for start in range(0, len(images), 8)]

    def get_next(self):
        return self.left.pop() if self.left else None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_random_networks_are_as_near_as_those_of_onnx_runtime(device, tmp_path, name):
    module, (images,) = getattr(models, name)(16)
    exported(module, images, tmp_path / "float.onnx")
    proto, images = onnx.load(tmp_path / "float.onnx"), images.numpy()
    ours = quantize.quantize(proto, data={"image": images}).proto
    quantization.quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "theirs.onnx",
        Samples(images),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )

    def on_onnx_runtime(model):
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(None, {"image": images})[0]

    exact, theirs = (on_onnx_runtime(tmp_path / f"{each}.onnx") for each in ("float", "theirs"))
    with settings.settings(FALLBACK=False), vklab.load(ours, device) as session:
        made = session.run(images)["logits"]
    # The same file differs by codes that lie half way; each then changes those that follow.
    same = codes.sqnr_db(on_onnx_runtime(ours.SerializeToString()), made)
    near, far = codes.sqnr_db(exact, made), codes.sqnr_db(exact, theirs)
    assert near > far - 2 and same > near, (near, far, same)
