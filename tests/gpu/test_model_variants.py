"""Exported models after what is done to them for use: quantized, narrowed, fused by others."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime import quantization
from onnxruntime.quantization import matmul_nbits_quantizer
from onnxruntime.transformers import float16, optimizer

import vklab
from support.models import exported_models

SIZES = {"batch": 2, "sequence": 3, "past": 5, "total": 8, "height": 32, "width": 32}
pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def quiet():
    """Keep the tools' progress out of the tests' output."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class Samples(quantization.CalibrationDataReader):
    """Four random inputs."""

    def __init__(self, model):
        self._left = [exported_models.inputs_of(model, SIZES, seed) for seed in range(4)]

    def get_next(self):
        return self._left.pop() if self._left else None


# Weights of 7 bits: on x86 without VNNI, ONNX Runtime's sums of uint8 x int8 saturate.
NARROW = {"reduce_range": True}


def static(model, folder, form):
    """Return a model of uint8 activations, scaled by samples."""
    source, target = save(model, folder), str(folder / "quantized.onnx")
    quantization.quantize_static(
        source,
        target,
        Samples(model),
        quant_format=form,
        **NARROW,
        activation_type=quantization.QuantType.QUInt8,
    )
    return onnx.load(target)


def save(model, folder):
    model.ir_version = min(model.ir_version, 10)
    onnx.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


def qdq(model, folder):
    return static(model, folder, quantization.QuantFormat.QDQ)


def qoperator(model, folder):
    return static(model, folder, quantization.QuantFormat.QOperator)


def dynamic(model, folder):
    quantization.quantize_dynamic(save(model, folder), str(folder / "quantized.onnx"), **NARROW)
    return onnx.load(folder / "quantized.onnx")


def four_bits(model, folder):
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        model, block_size=32, is_symmetric=False
    )
    quantizer.process()
    assert "MatMulNBits" in {node.op_type for node in quantizer.model.model.graph.node}
    return quantizer.model.model


def fused(model, folder):
    kind = "gpt2" if "wte" in str(model.graph.initializer) else "bert"
    return optimizer.optimize_model(save(model, folder), kind, 4, 64, opt_level=0).model


def half(model, folder):
    return float16.convert_float_to_float16(model)


def kinds(model):
    return {node.op_type for node in model.graph.node}


def runtime(model):
    """Return ONNX Runtime without fusions: those of quantized models round elsewhere."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


CASES = [
    ("bert", qoperator), ("gpt2_script", dynamic), ("llama", four_bits),
    ("bert_script", fused), ("gpt2_script", fused), ("lstm", half),
]  # fmt: skip
MORE = [
    ("vit_script", qdq),
    ("mobilenet_v3", qdq), ("bert", qdq), ("mobilenet_v3", qoperator), ("bert", dynamic),
    ("vit", four_bits), ("vit_script", fused), ("bert", half), ("unet", half),
    ("mobilenet_v3_script", half), ("efficientnet_b0", qdq), ("unet_script", dynamic),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_agrees_with_onnx_runtime(device_index, name, change, tmp_path):
    source = exported_models.load(name)
    model = change(exported_models.load(name), tmp_path)
    assert change is half or kinds(model) != kinds(source)
    sizes = {**SIZES, "sequence": 6} if name.startswith("lstm") else SIZES
    # ONNX Runtime computes float16 in another precision, and some of it never ends.
    truth = runtime(source if change is half else model)
    largest = []
    with vklab.load(model, device_index) as session:
        for seed in range(12 if change is dynamic else 1):
            inputs = exported_models.inputs_of(model, sizes, seed)
            wide = {
                n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in inputs.items()
            }
            expected = truth.run(None, wide if change is half else inputs)
            outputs = session.run(inputs)
            assert not exported_models.host_reasons(session)
            largest.append(largest_error(outputs.values(), expected))
            if largest[-1] <= (2e-2 if change is half else 1e-3):
                break
            # An activation between two codes may round either way, because float sums differ in
            # their last bit. One other code moves the result by some per cent; a wrong kernel
            # would move it for all inputs.
            assert change is dynamic and largest[-1] <= 5e-2, largest
        else:
            pytest.fail(f"no input agrees with ONNX Runtime: {largest}")


def largest_error(arrays, expected):
    """Return the largest error of the outputs, relative to the largest element of each."""
    errors = []
    for array, right in zip(arrays, expected, strict=True):
        assert array.shape == right.shape
        errors.append(np.abs(array.astype(np.float32) - right).max() / np.abs(right).max())
    return float(max(errors))
