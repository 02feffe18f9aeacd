"""Store the matrices of a GGUF file in another block format, or in a mix of formats.

The conversion of numbers is passed in, as this folder reads no other optional one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from vklab.apps.llm.weights import mixes
from vklab.apps.llm.weights.gguf import GgufFile, Value
from vklab.apps.llm.weights.stored import StoredTensor
from vklab.errors import ModelError
from vklab.ops import blocks

Convert = Callable[[str, np.ndarray], np.ndarray]
TYPES = (*blocks.FORMATS, *mixes.MIXES)
# What a row becomes that is no whole number of blocks of one format, in order.
SHORTER = ("Q8_0", "F16")
FILE_TYPE = "general.file_type"  # describes the mix
VERSION = "general.quantization_version"


def requantized(
    file: GgufFile, block_type: str, dequantize: Convert, quantize: Convert
) -> GgufFile:
    """Return a file whose matrices are stored in one format, or in a mix.

    Vectors, and GPT-2's table of positions, stay as they are. With one format, a matrix whose rows
    are no whole number of blocks gets Q8_0, or F16; a mix follows llama.cpp.

    Args:
        file: the file; tensors in the wanted format are shared with it.
        block_type: one of TYPES.
        dequantize: returns the values of rows of blocks, from a format and bytes.
        quantize: returns rows of blocks, from a format and values.

    Raises ModelError for an unknown format, and for values that it cannot store.
    """
    known: dict[str, Value] = {
        key: value for key, value in file.metadata.items() if key != FILE_TYPE
    }
    if block_type not in TYPES:
        raise ModelError(f"unknown format or mix {block_type!r}; choose {', '.join(TYPES)}")
    if block_type in mixes.MIXES:
        kinds = mixes.of_file(file, block_type)
        known |= {FILE_TYPE: mixes.MIXES[block_type].file_type, VERSION: 2}
    else:
        kinds = {
            tensor.name: _fitting(block_type, tensor.shape[-1])
            for tensor in file.tensors.values()
            if mixes.is_matrix(tensor.name, tensor.shape)
        }
    made = {tensor.name: tensor for tensor in _tensors(file, kinds, dequantize, quantize)}
    return replace(file, metadata=known, tensors=made)


def _fitting(block_type: str, columns: int) -> str:
    """Return a format of which a row is whole blocks."""
    kinds = (block_type, *SHORTER)
    return next(kind for kind in kinds if not columns % blocks.block_format(kind).elements)


def _tensors(
    file: GgufFile, kinds: dict[str, str], dequantize: Convert, quantize: Convert
) -> Iterator[StoredTensor]:
    for name, tensor in file.tensors.items():
        kind = kinds.get(name, tensor.block_type)
        if kind == tensor.block_type:
            yield tensor
            continue
        values = dequantize(tensor.block_type, tensor.data)
        yield replace(tensor, block_type=kind, data=quantize(kind, values))
