"""fuse_depthwise_norms: normalise the channels of each pixel in the convolution that made them.

One workgroup has all channels of its pixels, so their mean costs no dispatch. Visited by lab 10.
"""

from __future__ import annotations

import functools

from vklab.plan import last_depthwise
from vklab.plan.fusion.flow import Flow
from vklab.types import Dispatch


def fuse_depthwise_norms(flow: Flow) -> None:
    """Merge a LayerNormalization with the depthwise convolution whose result it alone reads.

    Source: Liu et al. 2022, "A ConvNet for the 2020s" (the pair begins each of its blocks)
    """
    for number, dispatch in flow.alive():
        if dispatch.kernel == "normalize" and not dispatch.prologue:
            image = dict(dispatch.reads)["x_buffer"]
            flow.fuse(number, flow.maker(image, number), functools.partial(_joined, flow))


def _joined(flow: Flow, norm: Dispatch, conv: Dispatch) -> Dispatch | None:
    if conv.kernel != "conv_last" or conv.epilogue:
        return None
    read, made = dict(norm.reads)["x_buffer"], conv.writes[0][1]
    whole = read.count == made.count and not flow.slices.get(read.name, 0)
    return last_depthwise.normed(conv, norm, flow.info) if whole else None
