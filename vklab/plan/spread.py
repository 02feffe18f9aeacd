"""The plan of a part that runs on several devices: its stages, a plan for each, what moves between.

Visited by lab 13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vklab import draw
from vklab.graph import passes
from vklab.graph.graph import Graph
from vklab.plan import plan as plans
from vklab.plan.barriers import Copy
from vklab.plan.place import cutting, transfer_paths
from vklab.plan.place.cutting import Stage, Transfer
from vklab.plan.place.placement import Placement
from vklab.plan.place.transfer_paths import TransferPath
from vklab.plan.plan import Plan
from vklab.types import DeviceInfo, Dispatch

__all__ = ["SpreadPlan", "make"]


@dataclass(frozen=True)
class SpreadPlan:
    """How one part runs on several devices.

    Attributes:
        plans: one for each stage, on the stage's device.
        transfers: what moves from one stage to another.
        devices: by the numbers that stages name.
        paths: how transfers are made, told by what makes them.
    """

    graph: Graph
    placement: Placement
    stages: tuple[Stage, ...]
    plans: tuple[Plan, ...]
    transfers: tuple[Transfer, ...]
    devices: tuple[DeviceInfo, ...]
    paths: dict[Transfer, TransferPath] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Return the names of the devices in use."""
        used = sorted({stage.device for stage in self.stages})
        return " and ".join(self._label(number) for number in used)

    def _label(self, number: int) -> str:
        info = self.devices[number]
        return f"{info.index}: {info.name}"

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Return all dispatches, stage after stage."""
        return tuple(d for plan in self.plans for d in plan.dispatches)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Return the copies between host-visible and device memory."""
        return tuple(c for plan in self.plans for c in plan.copies)

    def path(self, move: Transfer) -> TransferPath:
        """Return how a value moves, and why not in a better way."""
        unknown = TransferPath(transfer_paths.HOST_COPY, "no session has looked for a better")
        return self.paths.get(move, unknown)

    def dispatch_counts(self) -> Mapping[str, int]:
        """Return how many dispatches each device runs."""
        counts: Counter[str] = Counter()
        for stage, plan in zip(self.stages, self.plans, strict=True):
            counts[self._label(stage.device)] += len(plan.dispatches)
        return counts

    def summary(self) -> dict[str, Any]:
        """Return the counts that describe the plan, ready for JSON."""
        each = [plan.summary() for plan in self.plans]
        counts = ("dispatches", "barriers", "chunks", "arena_bytes", "lower_bound_bytes",
                  "weights_bytes")  # fmt: skip
        number = self._label
        return {
            "nodes": len(self.graph.nodes),
            **{name: sum(facts[name] for facts in each) for name in counts},
            "transfers": len(self.copies) + len(self.transfers),
            "generated_kernels": len({d.variant for d in self.dispatches if d.fragment}),
            "host_nodes": [],
            "placement": {
                node.name: number(stage.device)
                for stage in self.stages for node in stage.graph.nodes
            },
            "stages": [
                {"device": number(stage.device), "nodes": len(stage.graph.nodes),
                 "dispatches": len(plan.dispatches), "after": list(stage.predecessors)}
                for stage, plan in zip(self.stages, self.plans, strict=True)
            ],
            "moves": [
                {"value": move.value, "bytes": move.size_bytes,
                 "path": self.path(move).name, "reason": self.path(move).reason,
                 "from": number(self.stages[move.source or 0].device),
                 "to": number(self.stages[move.target].device)}
                for move in self.transfers
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        facts = self.summary()
        shares = ", ".join(f"{count} dispatches on {device}"
                           for device, count in self.dispatch_counts().items())  # fmt: skip
        moved = draw.bytes_text(sum(move.size_bytes for move in self.transfers))
        return (f"plan for {self.device}: {facts['nodes']} nodes in {len(self.stages)} cut, "
                f"{shares}; {len(self.transfers)} transfers, {moved}")  # fmt: skip

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return node, kernel, workgroups and written values of each step, as text."""
        rows = []
        for stage, plan in zip(self.stages, self.plans, strict=True):
            for move in self.transfers:
                if move.target == stage.number:
                    source = self._label(self.stages[move.source or 0].device)
                    rows.append((move.value, "transfer", "",
                                 f"{move.size_bytes} bytes from {source}: "
                                 f"{self.path(move)}"))  # fmt: skip
            rows.append((str(stage), "", "", self._label(stage.device)))
            rows += plan.rows()
        return rows

    def picture(self, title: str = "") -> str:
        """Draw each stage: its dispatches above its memory."""
        names = (f"{title} {stage}".strip() for stage in self.stages)
        return "".join(plan.picture(n) for plan, n in zip(self.plans, names, strict=True))

    def _repr_html_(self) -> str:
        headers = ("node", "kernel", "workgroups", "writes")
        return self.picture() + draw.table_html(str(self), headers, self.rows())


def make(
    graph: Graph,
    placement: Placement,
    devices: Sequence[DeviceInfo],
    dtype: str,
    unavailable: Callable[[Dispatch], str],
    resident: Sequence[Collection[str]] = (),
) -> SpreadPlan:
    """Cut a shaped graph as placed, and plan each stage on its device.

    Args:
        lying: for each device, the names of weights that it holds already.
        dtype: "float16" to compute in half precision; what moves between stages stays as it is.
    """
    early = transfer_paths.early(graph, placement.devices, devices)
    cut = cutting.cut(graph, placement.devices, early)
    moves = tuple(move for move in cutting.transfers(cut) if move.source is not None)
    unseen = transfer_paths.unseen(graph, cut, moves, devices)
    made = [
        plans.make_plan(passes.run(stage.graph, dtype), devices[stage.device], unavailable, unseen,
                        resident[stage.device] if resident else ())
        for stage in cut
    ]
    return SpreadPlan(graph, placement, cut, tuple(made), moves, tuple(devices))
