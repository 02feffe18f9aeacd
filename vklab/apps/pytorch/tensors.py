"""Conversion between PyTorch tensors and NumPy arrays, without a copy where dtype and device allow.

Visited by lab 09.
"""

from __future__ import annotations

import numpy as np
import torch

from vklab.errors import ModelError

BITS = {1: torch.uint8, 2: torch.uint16}


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array that shares its memory if dense and on the host, else a copy."""
    dense = tensor.detach().resolve_neg().cpu().contiguous()
    if dense.dtype.is_floating_point and (dense.itemsize == 1 or dense.dtype == torch.bfloat16):
        # NumPy knows these dtypes by the names that onnx registers.
        bits = dense.view(BITS[dense.itemsize]).numpy()
        return bits.view(str(dense.dtype).removeprefix("torch."))
    return dense.numpy()


def to_tensor(array: np.ndarray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor that shares its memory if writeable, else a copy.

    Args:
        array: the values.
        dtype: dtype of the tensor; another than the array's makes a copy.
        device: device of the tensor; another than the CPU makes a copy.
    """
    if not (array.flags.writeable and array.flags.c_contiguous):
        array = np.array(array, order="C")
    if array.dtype.isbuiltin == 1:
        tensor = torch.from_numpy(array)
    else:
        bits = torch.from_numpy(array.view(f"u{array.itemsize}"))
        tensor = bits.view(getattr(torch, str(array.dtype)))
    return tensor.to(device=device, dtype=dtype)


def require_dense(tensor: torch.Tensor) -> None:
    """Raise ModelError for a tensor that ONNX cannot express: complex, sparse or quantized."""
    if tensor.is_complex():
        raise ModelError(
            f"an input or output is a tensor of {tensor.dtype}, which ONNX does not "
            "have; take or return torch.view_as_real(x)"
        )
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ModelError(
            f"an input or output is a tensor of {tensor.dtype} and {tensor.layout}; "
            "only dense tensors are supported"
        )
