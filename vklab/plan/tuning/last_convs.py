"""Describe a convolution of channels-last images as the matrix product that its tiles compute.

Rows are pixels, columns filters. Visited by lab 08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vklab.plan.tuning.tiles import ProductSizes
from vklab.types import Dispatch

__all__ = ["as_product", "fixed", "sizes"]

SHARED = ("in_h", "in_w", "out_h", "out_w", "stride_h", "dilation_h", "dilation_w", "pad_top",
          "pad_left")  # fmt: skip


def sizes(dispatch: Dispatch) -> ProductSizes:
    """Return m, n, k and the batch count of the product."""
    push, constants = dict[str, Any](dispatch.push), dict(dispatch.constants)
    strips = -(-push["out_w"] // constants["PIXELS"])
    pixels = push["count"] // (push["n"] * strips) * push["out_w"]
    return pixels, push["n"], constants["KERNEL_H"] * constants["KERNEL_W"] * push["depth"], 1


def as_product(dispatch: Dispatch, width: int) -> Dispatch | None:
    """Return a convolution with the push constants of its kernels with tiles.

    Returns None for groups, and where `width` channels or filters at once cross a pixel.
    """
    push, constants = dict[str, Any](dispatch.push), dict(dispatch.constants)
    if push["filters"] != push["n"] or push["depth"] % width or push["n"] % width:
        return None
    m, n, k, _ = sizes(dispatch)
    made = {"m": m, "n": n, "k": k, "part": k, **{name: push[name] for name in SHARED},
            "stride_w": constants["STRIDE_W"]}  # fmt: skip
    return replace(dispatch, push=tuple(made.items()))


def fixed(made: Dispatch, dispatch: Dispatch) -> Dispatch:
    """Return a kernel with the sizes by which it divides at every step as constants."""
    width, depth = dict(dispatch.constants)["KERNEL_W"], dict[str, Any](dispatch.push)["depth"]
    return replace(made, constants=(*made.constants, ("KERNEL_W", width), ("CHANNELS", depth)))
