"""The small PyTorch models that `export_models.py` writes: random weights, no downloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from support.models.exported_models import VOCABULARY

SMALL = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1}
EAGER = {**SMALL, "attn_implementation": "eager"}


@dataclass(frozen=True)
class Source:
    """A module, the inputs that it is exported with, and names of inputs, outputs and open axes."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    axes: dict[str, dict[int, str]]
    outputs: list[str]
    opset: int = 20


class Pick(nn.Module):
    """Call a transformers model without a cache and return some of its outputs."""

    def __init__(self, model: nn.Module, names: list[str], keywords: list[str]) -> None:
        super().__init__()
        self.model, self.names, self.keywords = model, names, keywords

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the order of their names."""
        found = self.model(**dict(zip(self.keywords, inputs, strict=True)))
        return tuple(found[name] for name in self.names)


class Decoder(nn.Module):
    """A step of a decoder: tokens and what is kept of the ones before; logits and what is kept."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        position_ids: torch.Tensor,
        *past: torch.Tensor,
    ) -> Any:
        """Return logits, then keys and values of every layer."""
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        found = self.model(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=position_ids,
            past_key_values=cache,
        )
        kept = [t for layer in found.past_key_values.layers for t in (layer.keys, layer.values)]
        return (found.logits, *kept)


class Block(nn.Module):
    """Two normalised convolutions with a residual path."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(4, before),
            nn.SiLU(),
            nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1),
        )
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the body's result to the input."""
        return self.body(x) + self.skip(x)


class UNet(nn.Module):
    """Two scales down, attention at the bottom, two up: transposed convolution and resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.down = nn.ModuleList([Block(16, 16), Block(16, 32)])
        self.shrink = nn.ModuleList([nn.Conv2d(16, 16, 3, 2, 1), nn.AvgPool2d(2)])
        self.middle, self.mixed = nn.Linear(32, 96), nn.Linear(32, 32)
        self.bottom = Block(32, 32)
        self.grow = nn.ModuleList(
            [
                nn.ConvTranspose2d(32, 32, 4, 2, 1),
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
            ]
        )
        self.up = nn.ModuleList([Block(64, 16), Block(32, 16)])
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return four numbers a pixel."""
        x, kept = self.first(image), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = block(x)
            kept.append(x)
            x = shrink(x)
        flat = x.flatten(2).transpose(1, 2)
        query, key, value = self.middle(flat).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        flat = flat + self.mixed(mixed.transpose(1, 2).flatten(2))
        x = self.bottom(flat.transpose(1, 2).reshape(x.shape))
        for block, grow in zip(self.up, self.grow, strict=True):
            x = block(torch.cat([grow(x), kept.pop()], 1))
        return self.last(x)


class Tagger(nn.Module):
    """A tag for each token: two bidirectional LSTM layers, a GRU, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.lstm = nn.LSTM(24, 20, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(40, 16, batch_first=True)
        self.tags = nn.Linear(16, 7)

    def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logarithms of the tags' probabilities, and the last cell state."""
        x, (_, cell) = self.lstm(self.embedding(input_ids))
        return self.tags(self.gru(x)[0]).log_softmax(-1), cell


# --------------------------------------------------------------------------------------- models

TEXT = {0: "batch", 1: "sequence"}


def tokens(batch: int = 2, sequence: int = 6) -> torch.Tensor:
    """Return token numbers."""
    return torch.randint(0, VOCABULARY, (batch, sequence))


def bert() -> Source:
    """Return an encoder with a mask and a pooled output."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        **EAGER,
    )
    names = ["input_ids", "attention_mask", "token_type_ids"]
    kinds = torch.randint(0, 2, (2, 6))
    inputs = dict(zip(names, [tokens(), torch.ones(2, 6, dtype=torch.int64), kinds], strict=True))
    outputs = ["last_hidden_state", "pooler_output"]
    return Source(
        Pick(BertModel(config), outputs, names), inputs, dict.fromkeys(names, TEXT), outputs
    )


def gpt2() -> Source:
    """Return a decoder without a cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=64, use_cache=False, **EAGER)
    names = ["input_ids", "attention_mask"]  # without a mask the older exporter lacks aten::diff
    inputs = {"input_ids": tokens(), "attention_mask": torch.ones(2, 6, dtype=torch.int64)}
    return Source(
        Pick(GPT2LMHeadModel(config), ["logits"], names),
        inputs,
        dict.fromkeys(names, TEXT),
        ["logits"],
    )


def llama() -> Source:
    """Return a decoder with grouped keys and rotary positions, one step with its cache.

    From opset 23 on attention is one operator.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        **SMALL,
    )
    kept = {f"{kind}_{layer}": torch.randn(2, 2, 5, 16) for layer in (0, 1) for kind in "kv"}
    inputs = {
        "input_ids": tokens(2, 3),
        "mask": torch.ones(2, 8, dtype=torch.int64),
        "position_ids": torch.arange(5, 8).expand(2, 3),
        **kept,
    }
    axes = {
        "input_ids": TEXT,
        "mask": {0: "batch", 1: "total"},
        "position_ids": TEXT,
        **dict.fromkeys(kept, {0: "batch", 2: "past"}),
    }
    outputs = ["logits", *(f"new_{name}" for name in kept)]
    return Source(Decoder(LlamaForCausalLM(config)), inputs, axes, outputs, opset=23)


def vit() -> Source:
    """Return an image classifier of patches and attention."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    model = Pick(ViTForImageClassification(config), ["logits"], ["pixel_values"])
    return image(model, 32)


def image(module: nn.Module, size: int, axes: dict[int, str] | None = None) -> Source:
    """Return a source for a module of one image."""
    return Source(
        module,
        {"image": torch.randn(2, 3, size, size)},
        {"image": axes or {0: "batch"}},
        ["output"],
    )


def mobilenet_v3() -> Source:
    """Return MobileNetV3-small."""
    from torchvision.models import mobilenet_v3_small

    return image(mobilenet_v3_small(num_classes=10), 64)


def efficientnet_b0() -> Source:
    """Return EfficientNet-B0."""
    from torchvision.models import efficientnet_b0 as model

    return image(model(num_classes=10), 64)


def unet() -> Source:
    """Return a UNet whose image may have any size that four divides."""
    return image(UNet(), 32, {0: "batch", 2: "height", 3: "width"})


def lstm() -> Source:
    """Return a tagger of tokens."""
    return Source(Tagger(), {"input_ids": tokens()}, {"input_ids": TEXT}, ["tags", "cell"])


MODELS: dict[str, Callable[[], Source]] = {
    f.__name__: f for f in (bert, gpt2, llama, vit, mobilenet_v3, efficientnet_b0, unet, lstm)
}
