"""Plans as JSON, as rows of text and as HTML. Visited by lab 11."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vklab.base import draw
from vklab.plan.barriers import Copy
from vklab.plan.chunk import Chunk, Transfer
from vklab.plan.report import picture as pictures

Plan = Any  # a `plan.plan.Plan`, whose methods these functions are
Rows = list[tuple[str, str, str, str]]
HEADERS = ("node", "kernel", "workgroups", "writes, or why it is on the host")
_UNKNOWN = ("host copy", "no session has looked for a better")


def path_of(plan: Plan, move: Transfer) -> tuple[str, str]:
    """Return the name of the path that a transfer takes, and why no better one."""
    path = plan.paths.get(move, _UNKNOWN)
    return path[0], path[1]


def _device(plan: Plan, chunk: Chunk) -> str:
    """Return what the placement of a node is called: its device's name, numbered among several."""
    if not chunk.is_on_device:
        return "host"
    info = plan.devices[chunk.device]
    return info.label if _is_split(plan) else info.name


def _is_split(plan: Plan) -> bool:
    return len(plan.devices) > 1 or plan.placement is not None


def summary(plan: Plan) -> dict[str, Any]:
    """Return the counts that describe a plan, ready for JSON."""
    lowered = [chunk for chunk in plan.chunks if chunk.is_on_device]
    types = {node.name: node.op_type for chunk in plan.chunks for node in chunk.graph.nodes}
    facts: dict[str, Any] = {
        "nodes": sum(len(chunk.graph.nodes) for chunk in plan.chunks),
        "dispatches": len(plan.dispatches),
        "generated_kernels": len({d.variant for d in plan.dispatches if d.fragment}),
        "tuned_dispatches": sum(bool(dispatch.measured) for dispatch in plan.dispatches),
        "barriers": sum(len(chunk.barriers) for chunk in lowered),
        "chunks": sum(bool(chunk.steps) or not chunk.is_on_device for chunk in plan.chunks),
        "transfers": len(plan.copies) + len(plan.transfers),
        "arena_bytes": sum(chunk.memory.arena_bytes for chunk in lowered),
        "lower_bound_bytes": sum(chunk.memory.lower_bound_bytes for chunk in lowered),
        "weights_bytes": sum(chunk.memory.weights_bytes for chunk in lowered),
        "parts": [{"kind": c.kind, "nodes": len(c.graph.nodes)} for c in plan.chunks],
        "complete": plan.rest is None,
        "host_nodes": [
            {"name": name, "op_type": types.get(name, ""), "reason": reason}
            for name, reason in plan.reasons.items()
        ],
        "placement": {
            node.name: _device(plan, chunk) for chunk in plan.chunks for node in chunk.graph.nodes
        },
    }
    if _is_split(plan):
        facts["stages"] = [
            {
                "device": _device(plan, chunk),
                "nodes": len(chunk.graph.nodes),
                "dispatches": len(chunk.dispatches),
                "after": list(chunk.predecessors),
            }
            for chunk in plan.chunks
        ]
        facts["moves"] = [_move(plan, move) for move in plan.transfers]
    return facts


def _move(plan: Plan, move: Transfer) -> dict[str, Any]:
    name, reason = path_of(plan, move)
    source, target = plan.chunks[move.source or 0], plan.chunks[move.target]
    return {
        "value": move.value,
        "bytes": move.size_bytes,
        "path": name,
        "reason": reason,
        "from": _device(plan, source),
        "to": _device(plan, target),
    }


def rows(plan: Plan) -> Rows:
    """Return node, kernel, workgroups and written values of each step, as text."""
    found: Rows = []
    for chunk in plan.chunks:
        for move in plan.transfers:
            if move.target == chunk.number:
                name, reason = path_of(plan, move)
                source = _device(plan, plan.chunks[move.source or 0])
                how = f"{name} ({reason})" if reason else name
                found.append(
                    (move.value, "transfer", "", f"{move.size_bytes} bytes from {source}: {how}")
                )
        if _is_split(plan):
            found.append((str(chunk), "", "", _device(plan, chunk)))
        found += _steps(chunk) if chunk.is_on_device else _nodes(chunk)
    return found


def _steps(chunk: Chunk) -> Rows:
    found: Rows = []
    for node, step in zip(chunk.nodes, chunk.steps, strict=True):
        if isinstance(step, Copy):
            found.append((node, "copy", "", str(step)))
            continue
        written = ", ".join(str(info) for _, info in step.writes)
        groups = "x".join(map(str, step.workgroups))
        found.append((node, pictures.kernel_label(step), groups, written))
    return found


def _nodes(chunk: Chunk) -> Rows:
    return [
        (
            node.name,
            node.qualified_type,
            chunk.kind,
            chunk.reasons.get(node.name, "") or "known only to the host",
        )
        for node in chunk.graph.nodes
    ]


def picture(plan: Plan, title: str = "") -> str:
    """Draw each device chunk: its dispatches above its memory, as SVG."""
    drawn = [chunk for chunk in plan.chunks if chunk.is_on_device]
    if len(drawn) == 1:
        return pictures.chunk_svg(f"{title or plan.graph.name}: {plan}", drawn[0])
    return "".join(pictures.chunk_svg(f"{title} {chunk}".strip(), chunk) for chunk in drawn)


def write(plan: Plan, folder: str) -> None:
    """Write the rows of a plan into a file named after the model and its input shapes."""
    inputs = plan.chunks[-1].graph.inputs if plan.chunks else plan.graph.inputs
    shapes = "_".join("x".join(map(str, info.shape)) for info in inputs)
    name = "".join(c if c.isalnum() else "_" for c in plan.graph.name)[:40]
    target = Path(folder) / f"plan-{name}-{shapes}.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) for row in rows(plan)]
    target.write_text("\n".join([str(plan), *lines, ""]), encoding="utf-8")


def html(plan: Plan) -> str:
    """Return the picture of a plan above the table of its steps."""
    is_short = all(chunk.is_on_device for chunk in plan.chunks)
    summary_line, is_open = ("all dispatches", "") if is_short else ("all steps", " open")
    table = draw.table_html(str(plan), HEADERS, rows(plan))
    return f"{picture(plan)}<details{is_open}><summary>{summary_line}</summary>{table}</details>"
