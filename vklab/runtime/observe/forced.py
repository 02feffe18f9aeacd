"""Variants of plans that are forced wherever they apply, so that a suite runs through each of them.

A variant switches an optimisation off, or computes all products and convolutions by one rule. A CPU
device is planned for as a GPU, too: its driver runs the same kernels, slowly. Visited by lab 08.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vklab import settings
from vklab.plan.tuning import variants, word_variants
from vklab.plan.tuning.problems import Problem
from vklab.plan.tuning.tiles import Choice, ProductSizes, Tile
from vklab.runtime import open_devices
from vklab.runtime.observe import tuned
from vklab.types import DeviceInfo

__all__ = ["Forced", "Variant", "applied", "every"]

AS_IT_IS = "as it is"
# They change where compiled kernels are kept, or what several devices and measured times do.
_ELSEWHERE = {"DISABLE_CACHE", "DISABLE_MEASURED", "DISABLE_SHARED_MEMORY", "DISABLE_DMA_BUF",
              "DISABLE_OVERLAP", "DISABLE_DEVICE_ORDER", "DISABLE_EARLY_MOVES",
              "DISABLE_STAGING_RING", "DISABLE_TUNED"}  # fmt: skip
# Number of a tile among those that fit, and parts of sums; each rule is forced with each of them.
_FORMS = ((0, 1), (1, 2), (2, 3), (4, 1), (99, 2))
_UNTILED = {"plain", "few_rows", "one_row", "row_words", "words"}
_WHOLE = ((0, 1), (3, 1), (99, 1))  # of a CPU, whose sums are not cut


@dataclass(frozen=True)
class Variant:
    """One way to plan all models.

    Attributes:
        switches: switches of `settings` and their values.
        rule: rule of `plan.tuning.variants` or `word_variants`; "" leaves the choice to the time
            model.
        tile: number of the tile among those that fit; the last one if there are fewer.
        parts: parts into which each sum is cut.
        as_gpu: whether a CPU device is planned for as if it were a GPU.
    """

    switches: Mapping[str, str] = field(default_factory=dict)
    rule: str = ""
    tile: int = 0
    parts: int = 1
    as_gpu: bool = False

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.switches.items()]
        words += ["gpu"] if self.as_gpu else []
        words += [f"{self.rule}:{self.tile}:{self.parts}"] if self.rule else []
        return ",".join(words) or AS_IT_IS


def every(info: DeviceInfo) -> list[Variant]:
    """Return the variants for a device: as it is, without each switch, then each rule."""
    names = [name for name in settings.SETTINGS
             if name.startswith("DISABLE_") and name not in _ELSEWHERE]  # fmt: skip
    without = [Variant({name: "all" if name == "DISABLE_PASSES" else "1"}) for name in names]
    made = [Variant(), *without]
    if info.is_cpu:
        made += _of_rules(info, False, _WHOLE)
        made.append(Variant(as_gpu=True))
    return [*made, *_of_rules(replace(info, type="discrete"), info.is_cpu, _FORMS)]


def _of_rules(
    info: DeviceInfo, as_gpu: bool, forms: Iterable[tuple[int, int]]
) -> list[Variant]:
    """Return a variant for each rule and form.

    Args:
        info: the device, perhaps told to be a GPU.
        as_gpu: whether that is not true.
        forms: numbers of tiles, and parts.
    """
    rules = {**variants.rules_for(info), **({} if info.is_cpu else word_variants.RULES)}
    return [Variant({}, rule, *form, as_gpu=as_gpu) for rule in rules for form in forms
            if form[0] in (0, 1) or rule not in _UNTILED]  # fmt: skip


class Forced(dict[str, Choice]):
    """Choices that answer each class of products by one rule, as far as it applies.

    Args:
        variant: rule, tile and parts.
        info: the device.

    Attributes:
        asked: how often a plan has asked for a choice.
    """

    def __init__(self, variant: Variant, info: DeviceInfo) -> None:
        super().__init__()
        self._variant, self._info = variant, info
        self.asked = 0

    def __bool__(self) -> bool:
        return True

    def get(self, problem: Any, default: Any = None) -> Any:
        """Return the choice for a class, and note it; the default where the rule does not apply."""
        self.asked += 1
        rule = variants.rules_for(self._info, problem.dispatch.kernel).get(self._variant.rule)
        made = self._choice(rule, problem) if rule else None
        if made is None:
            return default
        self[str(problem)] = made
        return made

    def _choice(self, rule: variants.KernelRule, problem: Problem) -> Choice | None:
        offered: list[Tile] = []

        def picked(fitting: Iterable[Tile], sizes: ProductSizes) -> tuple[Tile, int] | None:
            offered.extend(fitting)
            return (offered[min(self._variant.tile, len(offered) - 1)], 1) if offered else None

        if rule(problem.dispatch, problem.sizes, self._info, picked) is None:
            return None
        shape = offered[min(self._variant.tile, len(offered) - 1)].shape if offered else ()
        # A part has a term at least.
        return self._variant.rule, shape, min(self._variant.parts, problem.sizes[2])


@contextlib.contextmanager
def applied(variant: Variant, device: int | str | None = None) -> Iterator[Forced]:
    """Plan the sessions that are loaded in a `with` block as a variant says.

    Args:
        variant: the variant.
        device: index or part of a name.

    Yields the choices; afterwards they hold the classes of products that the rule computed.
    """
    opened = open_devices.open_device(device)
    before = opened.info
    if variant.as_gpu:
        opened.info = replace(before, type="discrete")
    forced = Forced(variant, opened.info)
    try:
        with settings.settings(**variant.switches), tuned.instead(forced):
            yield forced
    finally:
        opened.info = before
