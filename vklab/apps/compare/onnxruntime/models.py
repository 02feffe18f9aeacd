"""Models as ONNX Runtime needs them: readable versions, fp16, int8, and with taps.

fp16 and int8 are made by ONNX Runtime's own tools. Where a tool refuses a model, so does the row.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from vklab.apps.compare.backend import Refused, Steps
from vklab.apps.compare.models import inputs

FOLDER = "session.model_external_initializers_file_folder_path"
SAMPLES = 16  # random inputs that calibrate an int8 model, if none are given
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def size_bytes(proto: onnx.ModelProto, folder: Path | None = None) -> int:
    """Return the bytes of a model with its external data."""
    names = {
        entry.value
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    outside = [folder / name for name in sorted(names)] if folder else []
    return proto.ByteSize() + sum(path.stat().st_size for path in outside if path.exists())


def tapped(proto: onnx.ModelProto, floats_only: bool = False) -> onnx.ModelProto:
    """Return the model with every value as an output; with `floats_only` those of float types."""
    inferred = onnx.shape_inference.infer_shapes(proto)
    known = {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    outputs = {value.name for value in made.graph.output}
    for name in (name for node in made.graph.node for name in node.output if name):
        kind = known[name].type.tensor_type.elem_type if name in known else 0
        if name in outputs or (floats_only and kind not in _FLOATS):
            continue
        made.graph.output.append(known.get(name) or onnx.ValueInfoProto(name=name))
    return made


def inside(proto: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """Return the model with its external data inside, for tools that rewrite weights."""
    if folder is not None:
        onnx.external_data_helper.load_external_data_for_model(proto, str(folder))
    return proto


def to_float16(proto: onnx.ModelProto, folder: Path | None = None) -> onnx.ModelProto:
    """Return the model in float16 with inputs and outputs as they are, by ONNX Runtime's tool.

    Raises Refused if the tool fails.
    """
    float16, _ = _load_tools()
    try:
        made: onnx.ModelProto = float16.convert_float_to_float16(
            inside(proto, folder), keep_io_types=True
        )
    except Exception as error:  # the tool raises whatever its rewriting meets
        raise Refused(f"onnxruntime.transformers.float16 refuses the model: {error}") from error
    return made


def to_int8(
    proto: onnx.ModelProto, folder: Path | None, calibration: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """Return the model with int8 weights and activations, by ONNX Runtime's static quantisation.

    Shape inference first: without it the tool fails on models of PyTorch's exporter.

    Args:
        proto: a float32 model.
        folder: folder of external data.
        calibration: arrays that fix the ranges of activations; random ones if it is empty.

    Raises Refused if the tool fails.
    """
    _, quantization = _load_tools()
    with tempfile.TemporaryDirectory(prefix="vklab-int8-") as work:
        source, target = Path(work) / "model.onnx", Path(work) / "int8.onnx"
        try:
            inferred = onnx.shape_inference.infer_shapes(_without_info(inside(proto, folder)))
            onnx.save(inferred, source)
            quantization.quantize_static(
                source,
                target,
                _reader(proto, calibration),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=saturates(),
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
            )
            return onnx.load(target)
        except Exception as error:  # the tool raises whatever its rewriting meets
            raise Refused(f"onnxruntime.quantization refuses the model: {error}") from error


def steps_of(quantised: onnx.ModelProto) -> Steps:
    """Return the steps of a model that `to_int8` made, by the names of the float32 model's values.

    The tool quantises a value X by a QuantizeLinear that reads X, or a copy of an output, and
    stores a weight W as W_quantized.
    """
    stored = {tensor.name: tensor for tensor in quantised.graph.initializer}
    values: dict[str, float] = {}
    weights: dict[str, np.ndarray] = {}
    for node in quantised.graph.node:
        if node.op_type == "QuantizeLinear":
            name = node.input[0].removesuffix("_QuantizeLinear_Input")
            values[name] = float(numpy_helper.to_array(stored[node.input[1]]).max())
        elif node.op_type == "DequantizeLinear" and node.input[0] in stored:
            scale = numpy_helper.to_array(stored[node.input[1]]).astype(np.float64)
            shape = [1] * len(stored[node.input[0]].dims)
            if scale.size > 1:
                axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
                shape[axis % len(shape)] = scale.size
            weights[node.input[0].removesuffix("_quantized")] = scale.reshape(shape)
    return Steps(values, weights)


def saturates() -> bool:
    """Tell whether this CPU adds pairs of 8-bit products in 16 bits, where they may saturate.

    x86 without VNNI does. Weights of 7 bits cannot saturate. Without a list of the CPU's features
    the answer is yes.

    Source: ONNX Runtime, "Quantize ONNX models", section on U8S8 and reduce_range.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    listed = Path("/proc/cpuinfo")
    return not (listed.exists() and "vnni" in listed.read_text("utf-8", "replace"))


def layer_values(values: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, Any]:
    """Return the values of an int8 model by the names of the float32 model's.

    The tool leaves some operators, such as ReLU, to the range of the quantisation: the value that
    stands for the layer is the one that was quantised and widened again.

    Args:
        values: all values by name.
        outputs: names of the model's outputs, which are kept.
    """
    ending = "_DequantizeLinear_Output"
    found = {
        name.removesuffix(ending): value for name, value in values.items() if name.endswith(ending)
    }
    return found | {name: values[name] for name in outputs}


def _without_info(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the exporter's notes on values, which contradict new ones."""
    del proto.graph.value_info[:]
    return proto


def _reader(proto: onnx.ModelProto, calibration: Mapping[str, np.ndarray]) -> Any:
    samples = _samples(proto, calibration)

    class Reader:
        """Iterator over the samples, in the form that the tool asks for."""

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(samples, None)

    return Reader()


def _samples(
    proto: onnx.ModelProto, calibration: Mapping[str, np.ndarray]
) -> Iterator[dict[str, np.ndarray]]:
    if calibration:
        yield dict(calibration)
        return
    random = np.random.default_rng(0)
    for _ in range(SAMPLES):
        yield inputs.drawn(proto, random, 2)


def _load_tools() -> tuple[Any, Any]:
    """Import ONNX Runtime's converter to float16 and its quantizer."""
    try:
        from onnxruntime import quantization
        from onnxruntime.transformers import float16
    except ImportError as error:
        raise Refused(f"the tools of onnxruntime cannot be imported: {error}") from error
    return float16, quantization
