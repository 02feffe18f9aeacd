"""Choose the fastest kernel for a product or convolution on one device.

Each rule is a pure function from a Dispatch to an equivalent one; DISABLE_VARIANTS switches off all
rules but those that a driver's limits require, DISABLE_PASSES one by its name. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.base import optional
from vklab.plan.tuning import (
    forced,
    pairs,
    plain_rows,
    prepack,
    single_rules,
    split_sums,
    tiles,
)
from vklab.plan.tuning.tiles import Choice, Chosen, KernelRule, Pick, ProductSizes, ProductTask
from vklab.types import DeviceInfo, Dispatch

__all__ = ["BLOCKS", "WORDS", "choose", "rules_for"]

Tuned = Mapping[str, Choice] | None

BLOCKS = frozenset({"matmul_blocks", "matmul_nbits", "matvec_blocks", "matvec_floats",
                    "matvec_units"})  # fmt: skip
WORDS = frozenset({"conv_words", "depthwise_words"})


def _rule(module: str, name: str) -> Callable[..., Any]:
    """Return a function of another file of this folder, which is loaded by its first call."""
    return optional.function(f"{__package__}.{module}", name)


_in_blocks = _rule("block_choices", "choose")
_in_words = _rule("word_variants", "choose")
_problem = _rule("problems", "of")
# Rules by name, the preferred ones first: of CPU devices, of GPUs, and for channels-last images.
CPU_RULES: dict[str, KernelRule] = {
    "depthwise": plain_rows.depthwise, "pairs": pairs.pairs, "shared_rows": plain_rows.shared_rows,
}  # fmt: skip
GPU_RULES: dict[str, KernelRule] = {
    "one_row": _rule("row_products", "one_row"),
    "rows_at_once": _rule("row_products", "rows_at_once"),
    "registers": _rule("register_products", "registers"), "sliced": _rule("last_convs", "sliced"),
    "matrix_product": _rule("tiled", "matrix_product"),
    "matrix_conv": _rule("tiled", "matrix_conv"), "tiled": _rule("tiled", "tiled"),
    "few_rows": plain_rows.few_rows,
}  # fmt: skip
LAST_RULES: dict[str, KernelRule] = {
    "registers": _rule("register_products", "windows"), "sliced": _rule("last_convs", "sliced"),
    "matrix_last": _rule("tiled", "matrix_last"), "tiled_last": _rule("tiled", "tiled_last"),
    "paired_last": _rule("last_convs", "paired"),
}  # fmt: skip


def choose(
    dispatch: Dispatch,
    info: DeviceInfo,
    resident: Collection[str] = (),
    tuned: Tuned = None,
) -> tuple[Dispatch, ...]:
    """Return the fastest equivalent dispatches for a device; `dispatch` itself if there is no rule.

    Args:
        dispatch: one dispatch of a plan.
        info: the device.
        resident: names of weights already on the device; a prepacked name encodes its layout.
        tuned: the choices that were measured on this device, by `problems.Problem`.
    """
    if not settings.get("DISABLE_VARIANTS"):
        if rule := single_rules.of(dispatch.kernel):
            return rule(dispatch, info)
        if dispatch.kernel in BLOCKS:
            made, left = _in_blocks(dispatch, info, resident, tuned)
            return (*made, *(choose(left, info, resident, tuned) if left else ()))
        if dispatch.kernel in WORDS:
            return (_in_words(dispatch, info, tuned),)
    if dispatch.kernel not in ("matmul", "conv", "conv_last"):
        return (dispatch,)
    sizes = _product_sizes(dispatch)
    pick: Pick = tiles.first if info.is_cpu else tiles.soonest
    given = ProductTask(dispatch, sizes, info, pick)
    chosen, measured = _plain(given), ""
    # The rules are for sums in float32 only.
    in_float32 = dict(dispatch.defines).get("ACC", "float") == "float"
    if in_float32 and not settings.get("DISABLE_VARIANTS"):
        laid_out = prepack.along_k(dispatch, sizes[:3], info, resident)
        if laid_out is dispatch:
            laid_out = prepack.in_wide_rows(dispatch, sizes[:3], info, resident)
        problem = _problem(laid_out, sizes) if tuned else None
        wanted = tuned.get(problem) if tuned and problem else None
        wanted = forced.choice() or wanted
        given = given._replace(dispatch=laid_out)
        found = _as_measured(wanted, given) if wanted else None
        measured = str(problem) if problem and (found or wanted and not wanted[0]) else ""
        expected = (rule(given) for rule in rules_for(info, dispatch.kernel).values())
        chosen = found or next(filter(None, expected))
    made = split_sums.split(*chosen, dispatch, sizes, info)
    return tuple(replace(each, measured=measured) for each in made) if measured else made


def _as_measured(wanted: Choice, given: ProductTask) -> Chosen | None:
    """Return a product computed as a choice says; None if that is not possible."""
    name, shape, count = wanted
    rules = rules_for(given.info, given.dispatch.kernel, forced.choice() is not None)
    made = rules[name](given._replace(pick=tiles.only(shape, count))) if name in rules else None
    return (made[0], count) if made else None


def rules_for(
    info: DeviceInfo, kernel: str = "matmul", every: bool = False
) -> dict[str, KernelRule]:
    """Return the rules for a device by name, the preferred ones first; the last always applies.

    Args:
        info: the device.
        kernel: the kernel of the operator.
        every: also the rules that are never fastest on such a device.
    """
    if kernel in WORDS:
        return dict(_rule("word_variants", "rules")())
    rules = LAST_RULES
    if kernel != "conv_last":
        shared = {"shared_rows": plain_rows.shared_rows} if every else {}
        rules = CPU_RULES if info.is_cpu and not every else {**GPU_RULES, **shared}
    left_out = settings.names("DISABLE_PASSES")
    return {**{n: rule for n, rule in rules.items() if n not in left_out}, "plain": _plain}


def _plain(given: ProductTask) -> Chosen:
    """Keep the kernel that runs on every device."""
    dispatch, sizes, _, _ = given
    whole = dispatch.kernel == "conv_last"
    return dispatch, 1 if whole else tiles.parts(math.prod(dispatch.workgroups), sizes[2])


def _product_sizes(dispatch: Dispatch) -> ProductSizes:
    push: dict[str, Any] = dict(dispatch.push)
    if dispatch.kernel == "conv_last":
        sizes: ProductSizes = _rule("last_convs", "sizes")(dispatch)
        return sizes
    if dispatch.kernel == "matmul":
        return push["m"], push["n"], push["k"], push["batches"]
    k = push["in_channels"] * push["kernel_h"] * push["kernel_w"]
    return push["out_channels"], push["out_h"] * push["out_w"], k, push["batches"]
