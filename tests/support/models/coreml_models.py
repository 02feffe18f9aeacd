"""The five PyTorch models of the Core ML tests: seeded weights, no downloads.

Convolutional weights are drawn by He fan-in and BatchNorm keeps the statistics of one seeded
batch, so that outputs spread: with default weights any tolerance would pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

VOCABULARY = 97
Example = tuple[nn.Module, torch.Tensor]


class MiniClassifier(nn.Module):
    """Two convolutions, a pooling and two linear layers: ten classes of 3x32x32 images."""

    def __init__(self, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            pool or nn.AdaptiveAvgPool2d(4),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.classifier(self.features(image))


class Residual(nn.Module):
    """Two convolutions and a path around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.around = (
            nn.Sequential()
            if stride == 1 and before == after
            else nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both paths, rectified."""
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.around(x))


class ResNet18(nn.Module):
    """ResNet-18. Source: He, Zhang, Ren and Sun, "Deep residual learning", 2015."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = (64, 64, 128, 256, 512)
        blocks = [
            Residual(
                widths[i] if number == 0 else widths[i + 1],
                widths[i + 1],
                2 if i and number == 0 else 1,
            )
            for i in range(4)
            for number in range(2)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(512, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(image))), 1))


class Squeeze(nn.Module):
    """Scale channels by a gate of their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, int(channels / 4 + 4) // 8 * 8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled image."""
        return x * self.gate(self.up(torch.relu(self.down(self.pool(x)))))


class Inverted(nn.Module):
    """An inverted residual: widen, convolve each channel, squeeze, narrow."""

    def __init__(
        self, before: int, kernel: int, wide: int, after: int, squeeze: int, hard: int, stride: int
    ) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if wide != before:
            layers += [nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), act()]
        layers += [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            act(),
        ]
        layers += [Squeeze(wide)] if squeeze else []
        layers += [nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)]
        self.body, self.around = nn.Sequential(*layers), stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the body's result, added to x where shapes agree."""
        return x + self.body(x) if self.around else self.body(x)


# kernel, widened channels, channels, squeeze, hard-swish, stride
SMALL = (
    (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2),
    (5, 240, 40, 1, 1, 1), (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1),
    (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1), (5, 576, 96, 1, 1, 1),
)  # fmt: skip


class MobileNetV3(nn.Module):
    """MobileNetV3-Small. Source: Howard et al., "Searching for MobileNetV3", 2019."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 16, 3, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.Hardswish(),
        ]
        before = 16
        for kernel, wide, after, squeeze, hard, stride in SMALL:
            layers.append(Inverted(before, kernel, wide, after, squeeze, hard, stride))
            before = after
        layers += [nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), nn.Hardswish()]
        self.features, self.pool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, classes))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.head(torch.flatten(self.pool(self.features(image)), 1))


class TextClassifier(nn.Module):
    """Embedding, LayerNorm, mean over the tokens, two linear layers."""

    def __init__(self, width: int = 48, classes: int = 4) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
        self.first, self.second = nn.Linear(width, 64), nn.Linear(64, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.norm(self.embedding(tokens)).mean(1)
        return self.second(torch.tanh(self.first(x)))


class Layer(nn.Module):
    """One transformer layer: attention and a two-layer network, each with a path around it."""

    def __init__(self, width: int, length: int, heads: int) -> None:
        super().__init__()
        self.split, self.joined = (-1, length, heads, width // heads), (-1, length, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result, of x's shape."""
        q, k, v = (
            each.reshape(self.split).transpose(1, 2)
            for each in self.qkv(self.before(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(self.joined))
        return x + self.narrow(nn.functional.gelu(self.wide(self.after(x))))


class Encoder(nn.Module):
    """Token and position embeddings, two transformer layers, a last LayerNorm."""

    def __init__(self, width: int = 64, length: int = 11) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.randn(1, length, width) * 0.1)
        self.layers = nn.Sequential(Layer(width, length, 4), Layer(width, length, 4))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a vector for each token."""
        return self.norm(self.layers(self.embedding(tokens) + self.position))


def spread(module: nn.Module, batch: torch.Tensor) -> nn.Module:
    """Draw weights by He fan-in, set BatchNorm's statistics by one batch; return the module."""
    for part in module.modules():  # the last layer keeps torch's weights
        if isinstance(part, nn.Conv2d):
            fan_in = math.prod(part.weight.shape[1:])
            nn.init.normal_(part.weight, 0, math.sqrt(2 / fan_in))
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None
    module.train()
    with torch.no_grad():
        module(batch)
    return module.eval()


def _images(size: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def mini_classifier() -> Example:
    """Return MiniClassifier and one image."""
    return spread(MiniClassifier(), _images(32, 8)), _images(32)


def resnet18() -> Example:
    """Return ResNet-18 and one image of 64 x 64."""
    return spread(ResNet18(), _images(64, 8)), _images(64)


def mobilenet_v3() -> Example:
    """Return MobileNetV3-Small and one image of 64 x 64."""
    return spread(MobileNetV3(), _images(64, 8)), _images(64)


def _tokens(length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (2, length), dtype=torch.int32)


def text_classifier() -> Example:
    """Return the text classifier and two texts."""
    return TextClassifier().eval(), _tokens(9)


def encoder() -> Example:
    """Return the transformer encoder and two texts."""
    return Encoder().eval(), _tokens(11)


MODELS: dict[str, Callable[[], Example]] = {
    "mini_classifier": mini_classifier, "resnet18": resnet18, "mobilenet_v3": mobilenet_v3,
    "text_classifier": text_classifier, "encoder": encoder,
}  # fmt: skip


def example(name: str, seed: int = 7) -> Example:
    """Return a model by name, always the same one."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module, given = MODELS[name]()
    return module.requires_grad_(False), given


def truth(module: nn.Module, given: torch.Tensor) -> np.ndarray:
    """Return the module's output, computed in float64."""
    wide: Any = given.double() if given.is_floating_point() else given
    with torch.no_grad():
        result = module.double()(wide).numpy()
    module.float()
    return result
