"""What a plan depends on besides the model and its devices: options of the caller, and facts.

Both are plain data: equal options and facts give equal plans. Visited by labs 11 and 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vklab import settings
from vklab.errors import ModelError, PlanError
from vklab.graph.graph import Graph, Node
from vklab.plan.constant_folding import Evaluate
from vklab.types import Dispatch

__all__ = ["Facts", "Options", "PlacementOptions"]

DTYPES = ("float16",)


@dataclass(frozen=True)
class PlacementOptions:
    """How a model is spread over several devices; devices go by their numbers in the plan.

    Attributes:
        pins: devices by patterns of node names or operators.
        caps: the most bytes that may be used of a device.
        policy: one of `place.placement.POLICIES`; "" for the default.
        fastest_first: "greedy" tries devices by their speed, not in the order given.
        node_ns: measured nanoseconds of nodes by name, by device.
        fixed: the device of each node by name, decided by an earlier plan.
    """

    pins: Mapping[str, int] = field(default_factory=dict)
    caps: Mapping[int, int] = field(default_factory=dict)
    policy: str = ""
    fastest_first: bool = False
    node_ns: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pins or self.caps or self.policy or self.node_ns)


@dataclass(frozen=True)
class Options:
    """What the caller decides.

    Attributes:
        dtype: "float16" to compute a float32 model in half precision; "" for the model's own.
        upper_bounds: the largest size of each open dimension, by name.
        placement: only where there are several devices.
        switches: the settings that plans depend on, as they were when the options were made.
    """

    dtype: str = ""
    upper_bounds: Mapping[str, int] = field(default_factory=dict)
    placement: PlacementOptions = PlacementOptions()
    switches: Mapping[str, settings.Value] = field(default_factory=settings.plan_switches)

    def __post_init__(self) -> None:
        if self.dtype not in ("", *DTYPES):
            raise ModelError(f"dtype={self.dtype!r} is not one to compute a model in; leave it out "
                             f"for the model's own, or use {', '.join(DTYPES)}")  # fmt: skip


def _no_host(node: Node, graph: Graph, values: Sequence[np.ndarray | None]) -> Sequence[Any]:
    raise PlanError(f"node {node.name!r}: no host evaluates nodes while this plan is made")


def _no_refusal(dispatch: Dispatch) -> str:
    return ""


@dataclass(frozen=True)
class Facts:
    """What the machine says at the moment of planning.

    Attributes:
        resident: for each device the names of the weights that it holds; layouts are in the names.
        free_bytes: for each device the bytes free; without it what drivers said at first.
        costs: measured speeds by device number (`place.costs.DeviceCosts`); others are guessed.
        evaluate: computes one node on the host, to fold known values.
        kernel_refusal: tells why the kernel of a dispatch cannot be had here, or "".
        placement: of the plan at the upper bounds; other shapes keep it, to run in its memory.
    """

    resident: tuple[frozenset[str], ...] = ()
    free_bytes: tuple[int, ...] = ()
    costs: Mapping[int, Any] = field(default_factory=dict)
    evaluate: Evaluate = _no_host
    kernel_refusal: Callable[[Dispatch], str] = _no_refusal
    placement: Any = None
