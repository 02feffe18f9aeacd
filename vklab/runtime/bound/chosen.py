"""Chosen outputs: of a model when it is loaded, or of one run.

At load, nodes that only the other outputs need are dropped. In a run, the other outputs are
computed and not copied out. Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab import settings
from vklab.errors import ModelError
from vklab.graph.graph import Graph
from vklab.graph.passes import drop_dead_nodes


def names(known: Sequence[str], outputs: Sequence[str] | str) -> tuple[str, ...]:
    """Return the chosen outputs, each once, in the caller's order.

    Raises ModelError, which lists the model's outputs, for an unknown name and for no name.
    """
    chosen = tuple(dict.fromkeys([outputs] if isinstance(outputs, str) else outputs))
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        problem = f"the model has no output {unknown[0]!r}" if unknown else "no output is chosen"
        raise ModelError(f"{problem}; choose from {', '.join(known)}")
    return chosen


def only(graph: Graph, outputs: Sequence[str] | str, saved: Any = None) -> Graph:
    """Return a graph with some of its outputs, and with the nodes that these need.

    The inputs stay, also those that no node reads any more.

    Args:
        graph: the imported graph.
        outputs: names of outputs.
        saved: the compiled model that the graph comes from, if there is one.
    """
    if saved:
        raise ModelError(
            "outputs= chooses before planning, and a compiled model is planned; "
            "choose in each run, with session.run(..., outputs=[...])"
        )
    return drop_dead_nodes.drop_dead_nodes(replace(graph, outputs=names(graph.outputs, outputs)))


def run(session: Any, inputs: tuple[Any, ...], outputs: Sequence[str] | str) -> dict[str, Any]:
    """Run once, and return only some outputs: the others are not copied out of the device.

    Args:
        session: the session.
        inputs: as `Session.run` takes them.
        outputs: names of outputs.
    """
    chosen = names(session.outputs, outputs)
    if settings.get("CHECK") or int(settings.get("DEBUG")) >= 2:  # these look at whole runs
        made: Mapping[str, Any] = session.run(*inputs)
        return {name: made[name] for name in chosen}
    values = session.arrays(inputs)
    with session.exclusive():
        root = session.roots[0]
        program = root.find(values).whole
        if program is None:
            made = root.executor.run(root, values)
        else:
            program.start(values)
            program.wait()
            made = program.binding.copy_out(chosen)
    return {name: made[name] for name in chosen}
