"""Llama as a torch module: what data/make_language_model.py trains and tests compare with.

RMSNorm, rotary embeddings of neighbouring elements, grouped queries, SwiGLU, and logits by the
embedding's transpose. Parameters have ggml's names. Imports torch at the top.
Source: Touvron et al., "LLaMA", 2023; Ainslie et al., "GQA", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a model; the defaults are those of the model in data/."""

    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 768
    context: int = 1024
    base: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Return the elements of one head."""
        return self.width // self.heads


class _Norm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight, self.epsilon)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class _Layer(nn.Module):
    def __init__(self, shape: LlamaShape, dropout: float) -> None:
        super().__init__()
        self.shape, self.drop, width = shape, nn.Dropout(dropout), shape.width
        self.attn_norm = _Norm(width, shape.epsilon)
        self.attn_q = _linear(width, shape.heads * shape.head)
        self.attn_k = _linear(width, shape.kv_heads * shape.head)
        self.attn_v = _linear(width, shape.kv_heads * shape.head)
        self.attn_output = _linear(shape.heads * shape.head, width)
        self.ffn_norm = _Norm(width, shape.epsilon)
        self.ffn_gate = _linear(width, shape.hidden)
        self.ffn_up = _linear(width, shape.hidden)
        self.ffn_down = _linear(shape.hidden, width)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.attn_norm(x), turns))
        y = self.ffn_norm(x)
        y = functional.silu(self.ffn_gate(y)) * self.ffn_up(y)
        return x + self.drop(self.ffn_down(y))

    def attention(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return causal attention of [batch, steps, width]."""
        q, k, v = (
            part(x).unflatten(-1, (-1, self.shape.head)).transpose(1, 2)
            for part in (self.attn_q, self.attn_k, self.attn_v)
        )
        repeats = self.shape.heads // self.shape.kv_heads
        k, v = (part.repeat_interleave(repeats, 1) for part in (_turned(k, turns), v))
        y = functional.scaled_dot_product_attention(_turned(q, turns), k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).flatten(-2))


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return heads whose pairs of neighbours are rotated. Source: Su et al., "RoFormer", 2021."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = turns.unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Llama(nn.Module):
    """A language model: maps int64 tokens [batch, steps] to logits [batch, steps, vocabulary].

    Args:
        shape: the sizes.
        dropout: the share of elements that training drops after each part of a layer.
    """

    def __init__(self, shape: LlamaShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList([_Layer(shape, dropout) for _ in range(shape.layers)])
        self.output_norm = _Norm(shape.width, shape.epsilon)
        self.drop = nn.Dropout(dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                last = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** (0.5 * last))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits after every token."""
        weight = self.token_embd.weight
        pairs = torch.arange(self.shape.head // 2, dtype=torch.float64, device=tokens.device)
        steps = torch.arange(tokens.shape[1], dtype=torch.float64, device=tokens.device)
        angles = steps[:, None] * self.shape.base ** (-2 * pairs / self.shape.head)
        turns = torch.stack((angles.cos(), angles.sin()), -1).to(weight.dtype)
        x = self.drop(self.token_embd(tokens))
        for layer in self.blk:
            x = layer(x, turns)
        return functional.linear(self.output_norm(x), weight)

    def load(self, arrays: Mapping[str, np.ndarray]) -> Llama:
        """Take weights by ggml's names, and return the module."""
        self.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
        return self
