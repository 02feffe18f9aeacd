"""Describe how a convolution reads a photograph: three channels padded to what a kernel loads.

Where a load takes eight channels, those of two neighbouring pixels are one, so that half as many
are padding. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vklab.ops.window import Window

# Channels of a pixel that is joined with its neighbour: two of them are one load of halves.
FOUR = 4


@dataclass(frozen=True)
class Photograph:
    """A photograph [N,H,W/joined,width*joined], and the window over it.

    Attributes:
        width: the channels of a pixel.
        joined: pixels of a line that are one.
        across: taps of zeros before and after those of each line of the window.
        strides: the window's steps.
        pads: the pads of the window, as an attribute of Conv.
    """

    width: int
    joined: int
    across: tuple[int, int]
    strides: tuple[int, ...]
    pads: tuple[int, ...]

    def laid_out(self, array: np.ndarray) -> np.ndarray:
        """Return filters [M,C,KH,KW] as [KH,KW,C,M], with zeros where the photograph has them."""
        more = (0, 0), (0, self.width - array.shape[1]), (0, 0), self.across
        turned = np.pad(array, more).transpose(2, 3, 1, 0)
        height, _, _, filters = turned.shape
        return np.ascontiguousarray(turned.reshape(height, -1, self.width * self.joined, filters))


def seen(window: Window, width: int) -> Photograph:
    """Return the photograph for a window whose kernel loads `width` channels.

    Pixels are joined if all windows begin at even pixels, or, with a tap of zeros, at odd ones.
    """
    (top, left), (down, stride), line = window.pads_begin, window.strides, window.input[1]
    before = left % 2
    pairs, first, step = -(-(window.kernel[1] + before) // 2), (left + before) // 2, stride // 2
    rest = (window.output[1] - 1) * step + pairs - line // 2 - first
    if width != 2 * FOUR or stride % 2 or line % 2 or window.dilations[1] > 1 or rest <= -step:
        pads = (*window.pads_begin, *window.pads_end)
        return Photograph(width, 1, (0, 0), tuple(window.strides), pads)
    across = before, 2 * pairs - window.kernel[1] - before
    pads = top, first, window.pads_end[0], max(rest, 0)
    return Photograph(FOUR, 2, across, (down, step), pads)
