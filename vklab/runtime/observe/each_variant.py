"""Variants of plans, so that a suite runs through each of them.

A variant switches an optimisation off, or computes all products and convolutions by one kernel. A
CPU device can be planned for as a GPU, too: its driver runs the same kernels, slowly. Visited by
lab 08.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vklab import settings
from vklab.plan.tuning import candidates, forced, tiles, variants
from vklab.plan.tuning.tiles import Choice
from vklab.runtime import open_devices
from vklab.runtime.observe import tuned
from vklab.types import DeviceInfo

# They change where compiled kernels are kept, or what several devices and measured times do.
_ELSEWHERE = {"DISABLE_CACHE", "DISABLE_MEASURED", "DISABLE_SHARED_MEMORY", "DISABLE_DMA_BUF",
              "DISABLE_OVERLAP", "DISABLE_DEVICE_ORDER", "DISABLE_EARLY_MOVES",
              "DISABLE_STAGING_RING", "DISABLE_TUNED"}  # fmt: skip
_TILED = {
    "tiled": (tiles.PRODUCT, tiles.PACKED, tiles.CONV),
    "matrix_product": (tiles.COOPERATIVE,),
    "matrix_conv": (tiles.COOPERATIVE_CONV,),
}
_PARTS = (1, 2, 3)  # into which sums are cut, in turn; a part has a term at least


@dataclass(frozen=True)
class Variant:
    """One way to plan all models.

    Attributes:
        switches: switches of `settings` and their values.
        as_gpu: whether a CPU device is planned for as if it were a GPU.
    """

    switches: Mapping[str, str] = field(default_factory=dict)
    as_gpu: bool = False

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.switches.items()]
        return ", ".join([*words, *(["as a GPU"] if self.as_gpu else [])]) or "as it is"

    @property
    def kernel(self) -> str:
        """Return the kernel that is forced, as `vklab tune` names it; "" for none."""
        return self.switches.get("VARIANT", "")


def every(info: DeviceInfo) -> list[Variant]:
    """Return the variants for a device: as it is, without each optimisation, with each kernel."""
    names = [
        name for name in settings.SETTINGS if name.startswith("DISABLE_") and name not in _ELSEWHERE
    ]
    made = [Variant(), *([Variant(as_gpu=True)] if info.is_cpu else [])]
    made += [Variant({name: "all" if name == "DISABLE_PASSES" else "1"}) for name in names]
    return [*made, *(Variant({"VARIANT": text}) for text in _kernels(info))]


def _kernels(info: DeviceInfo) -> list[str]:
    """Return the kernels of products, with each of their tiles, as `vklab tune` names them."""
    choices: list[Choice] = []
    for rule in variants.rules_for(info, every=True):
        tables = _TILED.get(rule)
        if tables is None:
            choices += [(rule, (), parts) for parts in _PARTS[:2]]
        elif rule == "tiled" or info.cooperative_matrices:
            shapes = dict.fromkeys(tile.shape for table in tables for tile in table)
            choices += [
                (rule, shape, _PARTS[number % len(_PARTS)]) for number, shape in enumerate(shapes)
            ]
    return [candidates.title(choice) for choice in choices]


class Classes(dict[str, Choice]):
    """Classes of products that a forced kernel computes; asked in place of measured choices.

    Args:
        info: the device.

    Attributes:
        info: the device.
        asked: how often a plan has asked for a choice.
    """

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__()
        self.info, self.asked = info, 0

    def __bool__(self) -> bool:
        return True

    def get(self, problem: Any, default: Any = None) -> Any:
        """Return no choice for a class; note the class if the forced kernel applies to it."""
        self.asked += 1
        choice = forced.choice()
        if (
            choice
            and variants.choose(problem.dispatch, self.info, (), {problem: choice})[0].measured
        ):
            self[str(problem)] = choice
        return default


@contextlib.contextmanager
def applied(variant: Variant, device: int | str | None = None) -> Iterator[Classes]:
    """Plan the sessions that are loaded in a `with` block as a variant says.

    Args:
        variant: the variant.
        device: index or part of a name.

    Yields the classes of products that a forced kernel has computed so far.
    """
    opened = open_devices.open_device(device)
    before = opened.info
    if variant.as_gpu:
        opened.info = replace(before, type="discrete")
    classes = Classes(opened.info)
    try:
        with settings.settings(**variant.switches), tuned.instead(classes):
            yield classes
    finally:
        opened.info = before
