"""Stages at which rules apply to a model, and what a row of the catalogue says.

Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vklab.base import late

# Stages, in the order in which a model meets them, with the protocol of their functions.
PASS = "pass"  # (Graph) -> Graph
LAYOUT = "layout"  # (Graph, elements of 16 bytes) -> Graph: after passes, which then run again
DTYPE = "dtype"  # (Graph) -> Graph: the last one, where a model is computed in float16
FUSION = "fusion"  # (Flow) -> None: fewer dispatches, changed in place
CHAIN = "chain"  # (JoinTask) -> Lowered: before kernels are chosen
KERNEL = "kernel"  # (Dispatch, DeviceInfo) -> tuple of dispatches: equivalent ones
CODES = "codes"  # (Dispatch, DeviceInfo, resident, tuned) -> tuple of dispatches
PRODUCT = "product"  # (ProductTask) -> Chosen or None: the first that is not None is taken
WORDS = "words"  # (ProductTask) -> Chosen or None: the same for convolutions of int8
NORM = "norm"  # (JoinTask) -> Lowered: when kernels are chosen
GATE = "gate"  # (JoinTask) -> Lowered: on dispatches in their final order
STEP = "step"  # of any signature: no rule that can be left out, but a part that few models need
GPU, CPU = "gpu", "cpu"


@dataclass(frozen=True)
class Choice:
    """A condition inside another rule that DISABLE_PASSES can leave out by its name.

    Attributes:
        name: as in DISABLE_PASSES.
        on: "gpu" or "cpu" if other devices never meet it; "" for all.
        groups: ablations that leave it out together with others.
        because: what it gains, in one clause.
    """

    name: str
    on: str = ""
    groups: tuple[str, ...] = ()
    because: str = ""


@dataclass(frozen=True)
class Rule:
    """One row: a function that replaces what it is given by something equivalent.

    A call imports its module, and calls its function.

    Attributes:
        name: as in DISABLE_PASSES; rows that share one are left out together.
        stage: when it is applied, which is the protocol of its function, too.
        module: the full name of its module.
        function: the name of its function; "" if that is the rule's.
        on: "gpu" or "cpu" if it is applied on such devices only; "" for all.
        needs: operators (of passes) or kernels without any of which it changes nothing.
        groups: as of a Choice.
        because: why it stands at this place, or what it gains, in one clause.
    """

    name: str
    stage: str
    module: str
    function: str = ""
    on: str = ""
    needs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    because: str = ""

    def load(self) -> Any:
        """Return the rule's function; its module is imported by the first call."""
        return late.attribute(self.module, self.function or self.name)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """Call the rule's function."""
        return self.load()(*arguments, **more)

    def meets(self, kinds: Iterable[str]) -> bool:
        """Tell whether any of some operators or kernels is one that the rule needs."""
        return not self.needs or not set(self.needs).isdisjoint(kinds)

    def suits(self, is_cpu: bool) -> bool:
        """Tell whether the rule is applied on CPU devices, or on others."""
        return self.on in ("", CPU if is_cpu else GPU)
