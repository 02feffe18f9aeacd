"""Networks of the parity reports as torch modules: convolutions, an encoder, a text classifier.

Imports torch at the top, so import this module through `models.load_networks` only. Visited by
lab 09.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

# Kernel, expanded channels, output channels, squeeze and excite, hard swish, stride.
# Source: Howard et al., "Searching for MobileNetV3", 2019, table 2
_MOBILE_BLOCKS = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip
_MOBILE_EPSILON = 1e-3
# Expansion, output channels of half width, blocks, stride of the first.
# Source: Sandler et al., "MobileNetV2", 2018, table 2
_HALF_BLOCKS = (
    (1, 8, 1, 1), (6, 16, 2, 2), (6, 16, 3, 2), (6, 32, 4, 2), (6, 48, 3, 1), (6, 80, 3, 2),
    (6, 160, 1, 1),
)  # fmt: skip


class MiniClassifier(nn.Module):
    """Two convolutions, adaptive average pooling and two linear layers.

    Maps float32 images [N, 3, 32, 32] (any size from 4 x 4 on) to logits [N, 10].
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.linear1 = nn.Linear(64 * 4 * 4, 128)
        self.linear2 = nn.Linear(128, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of `image`."""
        hidden = torch.relu(self.conv1(image))
        hidden = self.pool(torch.relu(self.conv2(hidden)))
        hidden = torch.relu(self.linear1(torch.flatten(hidden, 1)))
        logits: torch.Tensor = self.linear2(hidden)
        return logits


class _Residual(nn.Module):
    """Two 3x3 convolutions with BatchNorm beside a shortcut.

    Source: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2015
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the sum of both paths after ReLU."""
        hidden = torch.relu(self.norm1(self.conv1(image)))
        return torch.relu(self.norm2(self.conv2(hidden)) + self.shortcut(image))


class ResNet18(nn.Module):
    """ResNet-18: maps float32 images [N, 3, H, W] to logits [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.norm1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        stages = []
        for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            stages += [_Residual(inputs, outputs, stride), _Residual(outputs, outputs, 1)]
        self.blocks = nn.Sequential(*stages)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(512, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of `image`."""
        hidden = self.blocks(self.pool(torch.relu(self.norm1(self.conv1(image)))))
        logits: torch.Tensor = self.linear(torch.flatten(self.average(hidden), 1))
        return logits


class _SqueezeExcite(nn.Module):
    """Scale each channel by a factor that two 1x1 convolutions compute from all channel means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        # A quarter of the channels, rounded to a multiple of 8 that is not 10 % smaller.
        squeezed = max(8, (channels // 4 + 4) // 8 * 8)
        squeezed += 8 if squeezed < 0.9 * (channels // 4) else 0
        self.average = nn.AdaptiveAvgPool2d(1)
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the scaled image."""
        hidden = torch.relu(self.squeeze(self.average(image)))
        return image * functional.hardsigmoid(self.excite(hidden))


def _normed(inputs: int, outputs: int, size: int, stride: int, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs, eps=_MOBILE_EPSILON))


class _Inverted(nn.Module):
    """Expand the channels, filter each alone, and reduce them without an activation.

    Args:
        inputs: channels of the input.
        block: kernel, expanded channels, output channels, squeeze and excite, stride.
        activation: class of the activation after expanding and after filtering.
    """

    def __init__(
        self, inputs: int, block: tuple[int, int, int, bool, int], activation: type[nn.Module]
    ) -> None:
        super().__init__()
        size, expanded, outputs, squeezes, stride = block
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers += [_normed(inputs, expanded, 1, 1), activation()]
        layers += [_normed(expanded, expanded, size, stride, expanded), activation()]
        layers += [_SqueezeExcite(expanded)] if squeezes else []
        self.layers = nn.Sequential(*layers, _normed(expanded, outputs, 1, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the block's output, plus its input where both have the same shape."""
        hidden: torch.Tensor = self.layers(image)
        return image + hidden if self.adds else hidden


class MobileNetV3Small(nn.Module):
    """MobileNetV3-small: maps float32 images [N, 3, H, W] to logits [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_normed(3, 16, 3, 2), nn.Hardswish())
        channels = [16, *(block[2] for block in _MOBILE_BLOCKS)]
        blocks = zip(channels, _MOBILE_BLOCKS, strict=False)
        self.blocks = nn.Sequential(
            *(
                _Inverted(inputs, (*block[:4], block[5]), nn.Hardswish if block[4] else nn.ReLU)
                for inputs, block in blocks
            )
        )
        self.last = nn.Sequential(_normed(96, 576, 1, 1), nn.Hardswish())
        self.average = nn.AdaptiveAvgPool2d(1)
        self.linear1 = nn.Linear(576, 1024)
        self.swish = nn.Hardswish()
        self.linear2 = nn.Linear(1024, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of `image`."""
        hidden = self.average(self.last(self.blocks(self.stem(image))))
        logits: torch.Tensor = self.linear2(self.swish(self.linear1(torch.flatten(hidden, 1))))
        return logits


class MobileNetV2Half(nn.Module):
    """MobileNetV2 of half width: maps float32 images [N, 3, H, W] to logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_normed(3, 16, 3, 2), nn.ReLU6()]
        inputs = 16
        for factor, outputs, count, stride in _HALF_BLOCKS:
            for number in range(count):
                block = (3, factor * inputs, outputs, False, 1 if number else stride)
                layers.append(_Inverted(inputs, block, nn.ReLU6))
                inputs = outputs
        self.layers = nn.Sequential(*layers, _normed(inputs, 1280, 1, 1), nn.ReLU6())
        self.average = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(1280, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of `image`."""
        logits: torch.Tensor = self.linear(torch.flatten(self.average(self.layers(image)), 1))
        return logits


class _Attention(nn.Module):
    """Attention of several heads, each position to all."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def _split(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, positions, width = hidden.shape
        split = hidden.reshape(batch, positions, self.heads, width // self.heads)
        return split.transpose(1, 2)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return [N, positions, width], the weighted means of values."""
        parts = [self._split(layer(hidden)) for layer in (self.query, self.key, self.value)]
        mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2)
        result: torch.Tensor = self.out(mixed.reshape(hidden.shape))
        return result


class _Block(nn.Module):
    """One layer of the encoder: attention, then two linear layers, each behind a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return [N, positions, width]."""
        hidden = hidden + self.attention(self.norm1(hidden))
        inner = functional.gelu(self.linear1(self.norm2(hidden)))
        result: torch.Tensor = hidden + self.linear2(inner)
        return result


class Encoder(nn.Module):
    """A transformer encoder: maps float32 vectors [N, 32, 64] to logits [N, 10] of the first.

    Args:
        width: elements of a vector.
        heads: heads of each attention; they share the width.
        layers: the number of blocks.
    """

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, 10)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the logits of the first vector of each row."""
        logits: torch.Tensor = self.linear(self.norm(self.blocks(vectors))[:, 0])
        return logits


class TextClassifier(nn.Module):
    """Embedding, LayerNorm, one residual layer and a mean: maps int32 tokens [N, T] to logits.

    Args:
        words: the size of the vocabulary.
        classes: the number of logits.
        width: elements of a word's vector.
    """

    def __init__(self, words: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear1, self.linear2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the texts."""
        hidden = self.norm1(self.embedding(tokens))
        hidden = hidden + self.linear2(functional.gelu(self.linear1(hidden)))
        logits: torch.Tensor = self.head(self.norm2(hidden).mean(1))
        return logits


def draw_weights(module: nn.Module, seed: int = 0) -> nn.Module:
    """Fill the parameters with random values by He's rule, and return the module in eval mode.

    NumPy draws the weights, so that they are the same with every version of torch. Factors of a
    norm are near 1, biases near 0, and none is exactly so: an omission shows.

    Source: He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015, equation 10
    """
    random = np.random.default_rng(seed)
    for name, tensor in module.state_dict().items():
        if tensor.ndim == 0 or "running" in name:
            continue
        values = random.standard_normal(tuple(tensor.shape), np.float32)
        if tensor.ndim > 1:  # [outputs, inputs, ...]
            values *= np.float32((2 / tensor[0].numel()) ** 0.5)
        else:
            values = np.float32(0.1) * values + np.float32(name.endswith("weight"))
        tensor.copy_(torch.from_numpy(values))
    return module.eval()


def measure_statistics(module: nn.Module, batch: torch.Tensor) -> dict[str, np.ndarray[Any, Any]]:
    """Return the mean and variance of `batch` at each BatchNorm, by name in the state_dict.

    Each BatchNorm is fed what the ones before, with their new statistics, let through.
    """
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the plain mean over all batches, here one
        norm.reset_running_stats()
    with torch.no_grad():
        module.train()(batch)
    module.eval()
    state = module.state_dict().items()
    return {name: tensor.numpy() for name, tensor in state if "running" in name}


def load_weights(module: nn.Module, arrays: Mapping[str, np.ndarray[Any, Any]]) -> nn.Module:
    """Copy arrays by name into the module's state, and return the module in eval mode."""
    state = module.state_dict()
    for name, array in arrays.items():
        state[name].copy_(torch.from_numpy(array))
    return module.eval()
