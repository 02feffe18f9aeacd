"""Add the choice of the next token to a model's graph: a run's result is the next run's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

# The output of one run that is an input of the next, besides the caches.
STATES: Mapping[str, str] = {"tokens": "token", "lengths": "next_lengths",
                             "recent": "next_recent"}  # fmt: skip
# The chosen token once more, in memory that the host reads.
CHOSEN = "chosen"
OPTIONS = 12
# Recent tokens that the sampler remembers, unless penalties ask for more.
RECENT = 64


def generation_graph(graph: Graph, batch: int) -> Graph:
    """Return the graph of a model with a bounded cache, and with a sampler after its logits.

    Further inputs are `options` and `recent`, as `SampleToken` takes them; the states' outputs and
    `chosen` are further outputs.

    Args:
        graph: the model's graph, with logits after the last step alone.
        batch: the number of sequences.
    """
    inputs = (TensorInfo("options", "uint32", (1, OPTIONS)),
              TensorInfo("recent", "int32", (batch, "recent")))  # fmt: skip
    nodes = (
        Node("next_lengths", "Add", ("lengths", "counts"), ("next_lengths",)),
        Node("sample", "SampleToken", ("logits", "recent", "next_lengths", "options"),
             ("token", "next_recent"), {}, "vklab", 1),
        Node(CHOSEN, "Identity", ("token",), (CHOSEN,)),
    )  # fmt: skip
    return replace(
        graph,
        nodes=(*graph.nodes, *nodes),
        inputs=(*graph.inputs, *inputs),
        outputs=(*graph.outputs, *STATES.values(), CHOSEN),
        infos={**graph.infos, **{info.name: info for info in inputs}},
    )  # fmt: skip
