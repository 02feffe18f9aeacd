"""Choose the kernels of a product with weights in blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vklab.plan.tuning.blocks import block_sizes, float_blocks, split_blocks, wide_blocks
from vklab.plan.tuning.products import tiled
from vklab.plan.tuning.tiles import Choice, ProductTask
from vklab.types import DeviceInfo, Dispatch


def choose(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str],
    tuned: Mapping[str, Choice] | None,
) -> tuple[Dispatch, ...]:  # fmt: skip
    """Return the fastest dispatches; the last may be a matmul whose kernel is still to be chosen.

    Args:
        dispatch: one dispatch of a plan.
        info: the device.
        resident: names of weights already on the device.
        tuned: the choices that were measured on this device, by `problems.Problem`.
    """
    *halves, product = float_blocks.choose(dispatch, info) or (dispatch,)
    if product.kernel != "matmul":
        return (block_sizes.choose(dispatch, info, resident, tuned),)
    split = tuple(split_blocks.apply(each, info, resident) for each in halves)
    push = product.push_values
    sizes = push["m"], push["n"], push["k"], push["batches"]
    gated = wide_blocks.gated(
        product, lambda pick: tiled.matrix_product(ProductTask(product, sizes, info, pick))
    )
    return (*split, gated or product)
