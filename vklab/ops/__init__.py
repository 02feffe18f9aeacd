"""What each ONNX operator dispatches: one declarative function per operator, by family.

Importing this package registers them all. Pure data, no GPU. Visited by labs 09 and 20.
"""

from vklab.ops import (
    convolution,
    elementwise,
    linear,
    normalization,
    pooling,
    registry,
    shape,
    window,
)

__all__ = [
    "convolution",
    "elementwise",
    "linear",
    "normalization",
    "pooling",
    "registry",
    "shape",
    "window",
]
