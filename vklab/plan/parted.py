"""The plan of a model that does not run whole on one device: its parts, in order, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vklab import draw
from vklab.graph.graph import Graph
from vklab.plan.barriers import Copy
from vklab.plan.partition import Part
from vklab.plan.plan import Plan
from vklab.plan.spread import SpreadPlan
from vklab.types import Dispatch

__all__ = ["PartedPlan"]


@dataclass(frozen=True)
class PartedPlan:
    """Parts as they ran for the shapes used last; `plans` holds one for each Vulkan part.

    `is_complete` is false as long as a part is missing that only a run can decide.
    """

    graph: Graph
    device: str
    parts: tuple[Part, ...]
    plans: tuple[Plan | SpreadPlan | None, ...]
    is_complete: bool

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """Return all dispatches in the order in which they run."""
        return tuple(d for plan in self.plans if plan for d in plan.dispatches)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Return the copies between host-visible and device memory."""
        return tuple(c for plan in self.plans if plan for c in plan.copies)

    @property
    def reasons(self) -> Mapping[str, str]:
        """Return, for each node on the host, why it is there."""
        return {node: reason for part in self.parts for node, reason in part.reasons.items()}

    def summary(self) -> dict[str, Any]:
        """Return the counts that describe the plan, ready for JSON."""
        each = [plan.summary() for plan in self.plans if plan]
        counts = ("dispatches", "barriers", "chunks", "transfers", "arena_bytes",
                  "lower_bound_bytes", "weights_bytes")  # fmt: skip
        types = {node.name: node.op_type for part in self.parts for node in part.graph.nodes}
        return {
            "nodes": sum(len(part.graph.nodes) for part in self.parts),
            **{name: sum(facts[name] for facts in each) for name in counts},
            "generated_kernels": len({d.variant for d in self.dispatches if d.fragment}),
            "parts": [{"kind": p.kind, "nodes": len(p.graph.nodes)} for p in self.parts],
            "complete": self.is_complete,
            "host_nodes": [
                {"name": name, "op_type": types.get(name, ""), "reason": reason}
                for name, reason in self.reasons.items()
            ],
            "placement": {
                node.name: self.device if part.kind == "vulkan" else "host"
                for part in self.parts for node in part.graph.nodes
            } | {name: device for facts in each if "stages" in facts
                 for name, device in facts["placement"].items()},
            **{name: [entry for facts in each for entry in facts[name]]
               for name in ("stages", "moves") if any(name in facts for facts in each)},
        }  # fmt: skip

    def __str__(self) -> str:
        facts = self.summary()
        kinds = ", ".join(f"{len(part.graph.nodes)} {part.kind}" for part in self.parts)
        open_end = "" if self.is_complete else "; the rest is decided by the first run"
        return (
            f"plan for {self.device} and the host: {facts['nodes']} nodes in "
            f"{len(self.parts)} parts ({kinds}), {facts['dispatches']} dispatches{open_end}"
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return node, kernel, workgroups and written values of each step, as text."""
        rows = []
        for part, plan in zip(self.parts, self.plans, strict=True):
            if plan:
                rows += plan.rows()
                continue
            rows += [
                (node.name, node.qualified_type, part.kind, part.reasons.get(node.name, "") or
                 "known only to the host")
                for node in part.graph.nodes
            ]  # fmt: skip
        return rows

    def _repr_html_(self) -> str:
        headers = ("node", "kernel", "workgroups", "writes, or why it is on the host")
        pictures = "".join(plan.picture() for plan in self.plans if plan)
        table = draw.table_html(str(self), headers, self.rows())
        return f"{pictures}<details open><summary>all steps</summary>{table}</details>"
