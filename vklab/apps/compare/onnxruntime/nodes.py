"""Nodes that each provider of ONNX Runtime executes: from the assignment and from the profile.

A provider may be listed first and execute nothing: then every node ran on the CPU, the error
against the CPU is zero, and the row says nothing about the provider. Such a row does not count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vklab.apps.compare.backend import Refused

CPU = "CPUExecutionProvider"


def from_assignment(session: Any) -> dict[str, int]:
    """Return the model's nodes by provider, as the session assigned them; {} if it cannot tell."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return {}
    counts: Counter[str] = Counter()
    for part in ask():
        counts[part.ep_name] += len(part.get_nodes())
    return dict(counts)


def from_profile(path: Path) -> dict[str, int]:
    """Return the kernels by provider that a profiled run executed; fused nodes count once."""
    events = json.loads(path.read_text("utf-8"))
    kernels = {
        (event["args"].get("provider", ""), event["name"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    }
    return dict(Counter(provider for provider, _ in kernels if provider))


def agreed(assigned: Mapping[str, int], executed: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """Return nodes by provider and a note: both sources, and the profile decides who ran at all.

    The larger count is taken: the profile shows nodes that were fused as one, and an assignment
    may leave nodes out. A provider that was assigned nodes and executed none is counted with none.

    Args:
        assigned: nodes by provider; {} if unknown.
        executed: kernels by provider.
    """
    idle = sorted(name for name, count in assigned.items() if count and not executed.get(name))
    nodes = {
        name: max(assigned.get(name, 0), executed.get(name, 0)) if executed.get(name) else 0
        for name in (*executed, *idle)
    }
    if not idle:
        return nodes, ""
    return nodes, f"assigned nodes, but no kernel in the profile: {', '.join(idle)}"


def require(provider: str, nodes: Mapping[str, int]) -> None:
    """Raise Refused unless the provider executed at least one node."""
    if nodes.get(provider):
        return
    total = sum(nodes.values())
    others = ", ".join(f"{name} {count}" for name, count in nodes.items() if count) or "none"
    raise Refused(
        f"{provider} is listed first and executed 0 of {total} nodes ({others}), so its "
        "outputs would say nothing about it"
    )
