"""Weights of a NeuralNetwork's layers: float32, float16, or integers of a few bits.

Source: WeightParams and QuantizationParams of NeuralNetwork.proto, coremltools 9
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vklab.apps.compare.coreml.emission import Emission
from vklab.errors import ModelError


def weights(op: Emission, stored: Any, shape: Sequence[int]) -> np.ndarray:
    """Return the weights of a layer as float32, dequantized.

    Args:
        op: the emission, for error messages.
        stored: a Weights message.
        shape: the shape that the layer gives them.
    """
    count = math.prod(shape)
    forms = [
        name
        for name in ("floatValue", "float16Value", "rawValue", "int8RawValue")
        if len(getattr(stored, name))
    ]
    if len(forms) != 1:
        raise ModelError(f"{op.title}: weights must have one form, not {forms or 'none'}")
    if forms == ["floatValue"]:
        values = np.asarray(stored.floatValue, np.float32)
    elif forms == ["float16Value"]:
        values = _viewed(op, stored.float16Value, np.dtype("<f2"))
    elif forms == ["rawValue"] and stored.HasField("quantization"):
        values = _dequantized(op, stored, count, shape[0] if shape else 1)
    else:
        raise op.refusal(f"weights of the form {forms[0]}")
    if len(values) != count:
        raise ModelError(
            f"{op.title}: weights of shape {list(shape)} have {count} elements, the "
            f"file holds {len(values)}"
        )
    return values.astype(np.float32).reshape(shape)


def _viewed(op: Emission, data: bytes, dtype: np.dtype) -> np.ndarray:
    if len(data) % dtype.itemsize:
        raise ModelError(f"{op.title}: {len(data)} bytes of weights are no {dtype} elements")
    return np.frombuffer(data, dtype)


def _dequantized(op: Emission, stored: Any, count: int, channels: int) -> np.ndarray:
    """Return scale * q + bias, or table[q], of integers packed with their highest bit first."""
    how = stored.quantization
    bits = how.numberOfBits
    needed = -(-count * bits // 8)
    if not 1 <= bits <= 8 or len(stored.rawValue) != needed:
        raise ModelError(
            f"{op.title}: {count} weights of {bits} bits need {needed} bytes, the "
            f"file holds {len(stored.rawValue)}"
        )
    data = np.unpackbits(np.frombuffer(stored.rawValue, np.uint8))[: count * bits]
    padded = np.zeros((count, 8), np.uint8)
    padded[:, 8 - bits :] = data.reshape(count, bits)
    numbers = np.packbits(padded, axis=1).reshape(count)
    if how.WhichOneof("kind") == "lookupTableQuantization":
        table = np.asarray(how.lookupTableQuantization.floatValue, np.float32)
        if len(table) != 1 << bits:
            raise ModelError(f"{op.title}: a table of {len(table)} entries for {bits} bits")
        return table[numbers]
    scale = np.asarray(how.linearQuantization.scale, np.float32)
    shift = np.asarray(how.linearQuantization.bias, np.float32)
    shift = shift if len(shift) else np.zeros(1, np.float32)
    if not {len(scale), len(shift)} <= {1, channels}:
        raise ModelError(
            f"{op.title}: {len(scale)} scales and {len(shift)} biases for {channels} channels"
        )
    return (numbers.reshape(channels, -1) * scale[:, None] + shift[:, None]).reshape(-1)
