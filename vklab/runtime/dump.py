"""What DEBUG prints and DUMP writes about a plan when it is made."""

from __future__ import annotations

import sys
from pathlib import Path

from vklab import settings
from vklab.plan.plan import Plan

__all__ = ["report"]


def report(plan: Plan) -> None:
    """Say what was planned, as the switches ask; DUMP's file lies beside the SPIR-V."""
    if int(settings.get("DEBUG")) >= 1:
        print(plan, file=sys.stderr)
    folder = str(settings.get("DUMP"))
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        lines = ["\t".join(row) for row in plan.rows()]
        shapes_text = "_".join("x".join(map(str, i.shape)) for i in plan.graph.inputs)
        name = "".join(c if c.isalnum() else "_" for c in plan.graph.name)[:40]
        target = Path(folder) / f"plan-{name}-{shapes_text}.txt"
        target.write_text("\n".join([str(plan), *lines, ""]), encoding="utf-8")
