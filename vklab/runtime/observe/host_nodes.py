"""Nodes of a session that run on the host instead of a device: their number and the reasons.

A session warns of them once. `plan.partition` decides which nodes these are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vklab.errors import HostWarning
from vklab.graph.graph import Node
from vklab.runtime import last_run
from vklab.runtime.plan_cache import PlanCache

_SHOWN = 3
_NODE = re.compile(r"^node '[^']*'(?: \([^)]*\))?: ")
_KERNEL = re.compile(r"^kernel \S+ \{.*?\} is not")


@dataclass(frozen=True)
class HostNodes:
    """Nodes on the host, with the number of all nodes; `print` shows the reasons in one line.

    Attributes:
        nodes: pairs of a node and the reason why no device runs it.
        total: number of nodes on devices and on the host, before the passes.
        device: names of the devices.
        left: number of nodes that are not planned yet.
    """

    nodes: Sequence[tuple[Node, str]]
    total: int
    device: str
    left: int = 0

    @property
    def count(self) -> str:
        """Return "2 of 16 nodes", with "at least" in front while nodes are left to plan."""
        return f"{'at least ' if self.left else ''}{len(self.nodes)} of {self.total} nodes"

    @property
    def reasons(self) -> str:
        """Return the most frequent reasons, each with its number of nodes and their operators."""
        groups: dict[str, list[tuple[Node, str]]] = defaultdict(list)
        for node, reason in self.nodes:
            short = _KERNEL.sub("its kernel is not", _NODE.sub("", reason)) or "no reason"
            groups[re.sub(r"'[^']*'", "''", short)].append((node, short))
        ordered = sorted(groups.values(), key=len, reverse=True)
        texts = []
        for group in ordered[:_SHOWN]:
            kinds = list(dict.fromkeys(node.qualified_type for node, _ in group))
            more = ", ..." if len(kinds) > _SHOWN else ""
            texts.append(f"{len(group)} ({', '.join(kinds[:_SHOWN])}{more}): {group[0][1]}")
        texts += [f"and {len(ordered) - _SHOWN} more reasons"] if len(ordered) > _SHOWN else []
        return "; ".join(texts)

    def __str__(self) -> str:
        return f"{self.count} on the host: {self.reasons}" if self.nodes else ""


def of(root: PlanCache) -> HostNodes:
    """Return the nodes that ran on the host last, or that are planned to run there.

    Nodes in bodies of control nodes count, too.
    """
    last = next(reversed([root.plan, *(entry.plan for entry in root.path())]))
    left = len(last.rest.nodes) if last.rest else 0
    nodes: list[tuple[Node, str]] = []
    total = left
    for chunk in last_run.chunks(root):
        total += len((chunk.source or chunk.graph).nodes)
        if chunk.kind == "host":
            nodes += [(node, chunk.reasons.get(node.name, "")) for node in chunk.graph.nodes]
    names = " + ".join(state.opened.info.name for state in root.executor.devices)
    return HostNodes(nodes, total, names, left)


def of_session(session: Any) -> HostNodes:
    """Return the nodes of a session that run on the host, as far as they are planned."""
    session.require_open()
    return of(session.roots[0])


def warn_of(root: PlanCache) -> None:
    """Warn of the nodes that `of` returns."""
    nodes = of(root)
    HostWarning.issue(
        f"{nodes.count} run on the host, not on {nodes.device}: {nodes.reasons}; "
        "session.host_reasons has the reason for each"
    )
