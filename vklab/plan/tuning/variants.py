"""Choose the fastest kernel for a product or convolution on one device.

Each rule is a pure function from a Dispatch to an equivalent one; DISABLE_VARIANTS switches off all
rules but those that a driver's limits require, DISABLE_PASSES one by its name. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from vklab import settings
from vklab.base import catalogue, stages
from vklab.plan.tuning import forced, prepack, tiles
from vklab.plan.tuning.products import plain_rows, split_sums
from vklab.plan.tuning.tiles import Choice, Chosen, KernelRule, Pick, ProductSizes, ProductTask
from vklab.types import DeviceInfo, Dispatch

Tuned = Mapping[str, Choice] | None
PRODUCTS = ("matmul", "conv", "conv_last")


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
    if dispatch.kernel not in PRODUCTS:
        if settings.get("DISABLE_VARIANTS"):
            return (dispatch,)
        made = _replaced(dispatch, info, resident, tuned)
        last = made[-1]  # a product of weights that were in blocks still has no kernel
        if last is not dispatch and last.kernel in PRODUCTS:
            made = (*made[:-1], *choose(last, info, resident, tuned))
        return made
    sizes = _product_sizes(dispatch)
    pick: Pick = tiles.first if info.is_cpu else tiles.soonest
    given = ProductTask(dispatch, sizes, info, pick)
    chosen, measured = _plain(given), ""
    # The rules are for sums in float32 only.
    in_float32 = dispatch.define_values.get("ACC", "float") == "float"
    if in_float32 and not settings.get("DISABLE_VARIANTS"):
        laid_out = prepack.along_k(dispatch, sizes[:3], info, resident)
        if laid_out is dispatch:
            laid_out = prepack.in_wide_rows(dispatch, sizes[:3], info, resident)
        problem = catalogue.step("name a product")(laid_out, sizes) if tuned else None
        wanted = tuned.get(problem) if tuned and problem else None
        wanted = forced.choice() or wanted
        given = given._replace(dispatch=laid_out)
        found = _as_measured(wanted, given) if wanted else None
        measured = str(problem) if problem and (found or wanted and not wanted[0]) else ""
        expected = (rule(given) for rule in rules_for(info, dispatch.kernel).values())
        chosen = found or next(filter(None, expected))
    made = split_sums.split(*chosen, dispatch, sizes, info)
    return tuple(replace(each, measured=measured) for each in made) if measured else made


def _replaced(
    dispatch: Dispatch, info: DeviceInfo, resident: Collection[str], tuned: Tuned
) -> tuple[Dispatch, ...]:
    """Return equivalent dispatches by the rule of a kernel; a product among them has none yet."""
    for rule in catalogue.enabled(stages.KERNEL, info.is_cpu, (dispatch.kernel,)):
        made: tuple[Dispatch, ...] = rule(dispatch, info)
        return made
    for rule in catalogue.enabled(stages.CODES, info.is_cpu, (dispatch.kernel,)):
        return rule(dispatch, info, resident, tuned)
    return (dispatch,)


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
    if kernel == "conv_words":
        return _named(catalogue.enabled(stages.WORDS, info.is_cpu))
    # Only GPUs are given images with channels last, unless a test hands them to others.
    is_cpu = info.is_cpu and not every and kernel != "conv_last"
    rules = _named(catalogue.enabled(stages.PRODUCT, is_cpu, (kernel,)))
    if every and kernel != "conv_last" and not catalogue.is_off("shared_rows"):
        rules["shared_rows"] = plain_rows.shared_rows
    return {**rules, "plain": _plain}


def _named(rules: Iterable[stages.Rule]) -> dict[str, KernelRule]:
    return {rule.name: rule for rule in rules}


def _plain(given: ProductTask) -> Chosen:
    """Keep the kernel that runs on every device."""
    dispatch, sizes, _, _ = given
    whole = dispatch.kernel == "conv_last"
    return dispatch, 1 if whole else tiles.parts(math.prod(dispatch.workgroups), sizes[2])


def _product_sizes(dispatch: Dispatch) -> ProductSizes:
    push = dispatch.push_values
    if dispatch.kernel == "conv_last":
        made: ProductSizes = catalogue.step("sizes of windows")(dispatch)
        return made
    if dispatch.kernel == "matmul":
        return push["m"], push["n"], push["k"], push["batches"]
    k = push["in_channels"] * push["kernel_h"] * push["kernel_w"]
    return push["out_channels"], push["out_h"] * push["out_w"], k, push["batches"]
