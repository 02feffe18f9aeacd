"""Whether stages do a graph's work: each node once, each edge respected, nobody waits in vain."""

from __future__ import annotations

from collections.abc import Sequence

from vklab.errors import PlanError
from vklab.graph.graph import Graph
from vklab.plan.stages import Stage

__all__ = ["check_stages"]


def check_stages(graph: Graph, stages: Sequence[Stage]) -> None:
    """Raise PlanError unless the stages do the graph's work: each node once, each edge respected.

    Source: the definition, node by node; shares nothing with `cut`.
    """
    owner: dict[str, Stage] = {}
    makers: dict[str, Stage] = {}
    for place, stage in enumerate(stages):
        _require(stage.number == place, f"{stage} is at place {place}")
        for node in stage.graph.nodes:
            _require(node.name not in owner, f"node {node.name!r} is in two stages")
            owner[node.name] = stage
            makers.update(dict.fromkeys(filter(None, node.outputs), stage))
    _require(owner.keys() == {n.name for n in graph.nodes}, "the stages miss nodes, or add some")
    outside = {info.name for info in graph.inputs}
    for stage in stages:
        needed: set[int] = set()
        known = {info.name for info in stage.graph.inputs} | set(stage.graph.initializers)
        for info in stage.graph.inputs:
            source = makers.get(info.name)
            _require(source is not stage, f"{stage} reads its own {info.name!r} from outside")
            if source is None:
                _require(info.name in outside, f"nothing makes {info.name!r}, read by {stage}")
                continue
            _require(info.name in source.graph.outputs, f"{source} does not leave {info.name!r}")
            needed.add(source.number)
        for node in stage.graph.nodes:
            _require(known.issuperset(node.reads), f"{stage}: {node} runs before what it reads")
            known.update(node.outputs)
        _require(set(stage.graph.outputs) <= known, f"{stage} leaves what it does not make")
        _require(set(stage.predecessors) == needed, f"{stage} should wait for {sorted(needed)}")
        _require(all(n < stage.number for n in needed), f"{stage} waits for a later stage")
    for stage in stages:
        followers = {s.number for s in stages if stage.number in s.predecessors}
        _require(set(stage.dependents) == followers, f"{stage} should free {sorted(followers)}")
    for name in graph.outputs:
        left = name not in makers or name in makers[name].graph.outputs
        _require(left, f"no stage leaves the output {name!r}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise PlanError(message)
