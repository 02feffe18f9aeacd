"""PyTorch factories for tests of the parity report; children import this module."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["masked", "no_module", "two_outputs"]


class TwoOutputs(nn.Module):
    """Two linear layers; returns the features and the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features and scores."""
        features = torch.relu(self.first(values))
        return features, self.second(features).softmax(-1)


def two_outputs():
    """Return the module, in training mode as a careless factory would, and its example."""
    torch.manual_seed(3)
    return TwoOutputs(), (torch.randn(1, 8),)


def no_module():
    """Return what no factory returns."""
    return 3


class Masked(nn.Module):
    """The two lowest bits of integers: ONNX has the operator, coremltools does not."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the bits as float32."""
        return (values & 3).float()


def masked():
    """Return the module and its example."""
    return Masked(), (torch.arange(8, dtype=torch.int32).reshape(1, 8),)
