"""Decide in which precision products are computed: the argument `precision` of `load`.

Without it products of float32 are exact to float32, and those of float16 and bfloat16 have sums in
float32; rows are rounded below their dtype where the model permits it. Visited by lab 08b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vklab import settings
from vklab.errors import SettingError, SetupError
from vklab.types import CooperativeMatrix, DeviceInfo

# dtypes of A, B, C and the result of one instruction of matrix units.
Kinds = tuple[str, str, str, str]
HALF: Kinds = ("float16", "float16", "float32", "float32")
HALF_SUMS: Kinds = ("float16", "float16", "float16", "float16")
SPLIT: Kinds = ("bfloat16", "bfloat16", "float32", "float32")
# A float32 is the sum of two bfloat16 up to 2^-16 of it: a product takes three of theirs.
CHOICES = {"bf16x3": SPLIT, "half-sums": HALF_SUMS}
# Permission and prohibition to round rows that are multiplied by weights in blocks, which no
# device has to offer: `block_units.may_round`.
ROWS = ("int8", "exact")
NAMES = {"bf16x3": "bfloat16 with sums in float32", "half-sums": "float16 with sums in float16"}
# The vendor, invocations of a subgroup and side of a matrix for which it is known which elements
# an invocation has.
NVIDIA, LANES, SIDE = 0x10DE, 32, 16


def chosen() -> str:
    """Return the key of CHOICES in the switch PRECISION, "" for none; SettingError if unknown."""
    text = str(settings.get("PRECISION"))
    if text not in ("", *CHOICES, *ROWS):
        raise SettingError(
            f"precision {text!r} is unknown; leave it out for the dtype's own, or "
            f"choose {', '.join((*CHOICES, *ROWS))}"
        )
    return text if text in CHOICES else ""


def check(precision: str, opened: Sequence[Any]) -> dict[str, str]:
    """Return the switches for a precision; every device must offer the matrices of CHOICES.

    Args:
        precision: one of CHOICES or ROWS.
        opened: the open devices.

    Raises SettingError for an unknown precision, SetupError for a device without such matrices.
    """
    with settings.settings(PRECISION=precision):
        kinds = CHOICES.get(chosen())
    if kinds is None:
        return {"PRECISION": precision}
    for info in (each.info for each in opened):
        if matrix(info, kinds) is None:
            known = {f"{m.a} with sums in {m.result}" for m in info.cooperative_matrices}
            raise SetupError(
                f"precision={precision!r} needs cooperative matrices of {NAMES[precision]}; "
                f"{info.name} has {', '.join(sorted(known)) or 'none'}",
                "leave precision out: products are then computed in the dtype's own precision",
            )
    return {"PRECISION": precision}


def matrix(info: DeviceInfo, kinds: Kinds) -> CooperativeMatrix | None:
    """Return the largest matrix of these dtypes that kernels can use; None if there is none."""
    usable = [
        each
        for each in info.cooperative_matrices
        if (each.a, each.b, each.c, each.result) == kinds
        and not any(side % 8 for side in (each.m, each.n, each.k))
    ]
    if "bfloat16" in kinds and "shaderBFloat16CooperativeMatrix" not in info.features:
        return None
    return max(usable, key=lambda each: each.m * each.n * each.k, default=None)


def is_nvidia(info: DeviceInfo) -> bool:
    """Tell whether a device has the driver of NVIDIA; NVK, of the same vendor, is another one."""
    return info.vendor_id == NVIDIA and info.driver.startswith("NVIDIA")


def has_known_order(info: DeviceInfo) -> bool:
    """Tell whether it is known which elements of a matrix of halves an invocation has.

    It is for the driver of NVIDIA (checked on an H200, driver 580).
    """
    one = matrix(info, HALF)
    shape = (one.m, one.n, one.k) if one else ()
    return (info.subgroup_size, shape) == (LANES, (SIDE, SIDE, SIDE)) and is_nvidia(info)
