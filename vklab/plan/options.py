"""Options of the caller and facts about the machine, on which a plan depends.

Equal options and facts give equal plans. Options are plain data. Facts hold two functions as well:
planning asks them about kernels and values, and does not import `shader/` or `runtime/`. Visited by
labs 11 and 13.
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

DTYPES = ("float16",)


@dataclass(frozen=True)
class PlacementOptions:
    """Options for spreading a model over several devices, by their indices in the plan.

    Attributes:
        pins: the device of nodes, by pattern of node names or operators.
        caps: the largest number of bytes to use on a device.
        policy: one of `place.placement.POLICIES`; "" for the default.
        fastest_first: "greedy" takes devices by speed instead of in the given order.
        node_ns: for each device the measured nanoseconds of nodes, by name.
    """

    pins: Mapping[str, int] = field(default_factory=dict)
    caps: Mapping[int, int] = field(default_factory=dict)
    policy: str = ""
    fastest_first: bool = False
    node_ns: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Tell whether an option asks for placement even on one device."""
        return bool(self.pins or self.caps or self.policy or self.node_ns)


@dataclass(frozen=True)
class Options:
    """Options of the caller.

    Attributes:
        dtype: "float16" to compute a float32 model in half precision; "" for the model's own.
        upper_bounds: the largest size of each open dimension, by name.
        placement: options for several devices.
        switches: the settings on which plans depend; a session keeps those of its loading.
    """

    dtype: str = ""
    upper_bounds: Mapping[str, int] = field(default_factory=dict)
    placement: PlacementOptions = PlacementOptions()
    switches: Mapping[str, settings.Value] = field(default_factory=settings.plan_switches)

    def __post_init__(self) -> None:
        if self.dtype not in ("", *DTYPES):
            raise ModelError(
                f"dtype={self.dtype!r} is not one to compute a model in; leave it out "
                f"for the model's own, or use {', '.join(DTYPES)}"
            )


def _no_host(node: Node, graph: Graph, values: Sequence[np.ndarray | None]) -> Sequence[Any]:
    raise PlanError(f"node {node.name!r}: no host evaluates nodes while this plan is made")


def _no_refusal(dispatch: Dispatch) -> str:
    return ""


@dataclass(frozen=True)
class Facts:
    """Facts about the machine at the time of planning.

    Attributes:
        resident: for each device the names of its resident weights; the names include the layout.
        tuned: for each device the measured choices, by class (`tuning.problems.Problem`).
        free_bytes: free bytes of each device; empty: as reported when the device was listed.
        costs: measured speeds by device index (`place.costs.DeviceCosts`); others are estimated.
        evaluate: computes one node on the host, to fold known values.
        kernel_refusal: returns why this machine has no kernel for a dispatch, or "".
        placement: placement of an earlier plan, which this plan reuses; with upper bounds, that of
            the plan at the bounds.
    """

    resident: tuple[frozenset[str], ...] = ()
    tuned: Sequence[Mapping[str, Any]] = ()
    free_bytes: tuple[int, ...] = ()
    costs: Mapping[int, Any] = field(default_factory=dict)
    evaluate: Evaluate = _no_host
    kernel_refusal: Callable[[Dispatch], str] = _no_refusal
    placement: Any = None
