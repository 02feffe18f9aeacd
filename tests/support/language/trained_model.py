"""The language model of data/, in any block format, in PyTorch, and its held-out text."""

from __future__ import annotations

import functools

import numpy as np

from support.graphs.small_models import DATA
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import GgufFile, read_gguf
from vklab.apps.llm.weights.requantize import requantized
from vklab.apps.quantization import blocks

__all__ = ["MODEL", "TEXT", "held_out", "in_format", "tokens", "torch_logits"]

MODEL, TEXT = DATA / "novels_llama.gguf", DATA / "held_out.txt"


@functools.cache
def in_format(kind: str) -> GgufFile:
    """Return the model with its matrices in a block format; F16 is the file as it is."""
    file = read_gguf(MODEL)
    return requantized(file, kind, blocks.dequantize, blocks.quantize)


@functools.cache
def held_out() -> str:
    """Return the text that the model was not trained on."""
    return TEXT.read_text("utf-8")


@functools.cache
def tokens() -> tuple[int, ...]:
    """Return the tokens of the held-out text."""
    return tuple(Tokenizer(read_gguf(MODEL)).encode(held_out()))


def torch_logits(row: np.ndarray, dtype: str = "float64") -> np.ndarray:
    """Return PyTorch's logits after every token of a row, as float64 [tokens, vocabulary].

    Args:
        row: the tokens.
        dtype: the dtype of weights and arithmetic.
    """
    import torch

    from vklab.apps.compare.models.language import Llama, LlamaShape

    file = read_gguf(MODEL)
    weights = {
        name: blocks.dequantize(tensor.block_type, tensor.data).reshape(tensor.shape)
        for name, tensor in file.tensors.items()
    }
    module = Llama(LlamaShape(len(Tokenizer(file)))).to(getattr(torch, dtype)).load(weights).eval()
    with torch.no_grad():
        return module(torch.from_numpy(row[None]))[0].double().numpy()
