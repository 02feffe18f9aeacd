"""Protocol of `TensorInfo.layout`: weights that are stored in another order than in the model."""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ["Layout"]


class Layout(Protocol):
    """Order in which the values of a weight are stored in a tensor that is made from it."""

    @property
    def weight(self) -> str:
        """Return the name of the weight whose values these are."""

    def __hash__(self) -> int: ...

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the weight in this order."""
