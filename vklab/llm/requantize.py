"""Store the matrices of a GGUF file in another block format.

The conversion of numbers is passed in, as this folder reads no other optional one. Visited by
lab 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from vklab.llm.gguf import GgufFile
from vklab.llm.stored import StoredTensor
from vklab.ops import blocks

__all__ = ["requantized"]

Convert = Callable[[str, np.ndarray], np.ndarray]
# What a row becomes that is no whole number of blocks, in order.
SHORTER = ("Q8_0", "F16")
FILE_TYPE = "general.file_type"  # describes the mix that the file had


def requantized(
    file: GgufFile, block_type: str, dequantize: Convert, quantize: Convert
) -> GgufFile:
    """Return a file whose matrices are stored in one format; vectors stay as they are.

    A matrix whose rows are no whole number of blocks gets Q8_0, or F16.

    Args:
        file: the file; tensors in the wanted format are shared with it.
        block_type: the name of a format in `ops.blocks.FORMATS`.
        dequantize: returns the values of rows of blocks, from a format and bytes.
        quantize: returns rows of blocks, from a format and values.

    Raises ModelError for an unknown format, and for values that it cannot store.
    """
    blocks.block_format(block_type)
    made = {tensor.name: tensor for tensor in _tensors(file, block_type, dequantize, quantize)}
    known = {key: value for key, value in file.metadata.items() if key != FILE_TYPE}
    return replace(file, metadata=known, tensors=made)


def _tensors(
    file: GgufFile, block_type: str, dequantize: Convert, quantize: Convert
) -> Iterator[StoredTensor]:
    for tensor in file.tensors.values():
        columns = tensor.shape[-1]
        kind = next(kind for kind in (block_type, *SHORTER)
                    if not columns % blocks.block_format(kind).elements)  # fmt: skip
        if len(tensor.shape) < 2 or kind == tensor.block_type:
            yield tensor
            continue
        values = dequantize(tensor.block_type, tensor.data)
        yield replace(tensor, block_type=kind, data=quantize(kind, values))
