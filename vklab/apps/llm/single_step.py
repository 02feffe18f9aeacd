"""single_step: one step of a language model with its inputs, for measurements of its kernels."""

from __future__ import annotations

import numpy as np

from vklab.apps.llm import models
from vklab.apps.llm.build import BoundedCache
from vklab.apps.llm.gguf import GgufFile
from vklab.graph.graph import Graph

# Positions of the cache: its products do not depend on them.
CONTEXT = 64


def single_step(file: GgufFile) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return the graph of a model with a small bounded cache, and inputs of its first step.

    Raises ModelError as `models.model_graph` does.
    """
    graph = models.model_graph(file, min(CONTEXT, models.trained_context(file)),
                               bounded=BoundedCache("F16", 1))  # fmt: skip
    shapes = {info.name: tuple(size if isinstance(size, int) else 1 for size in info.shape)
              for info in graph.inputs}  # fmt: skip
    values = {info.name: np.zeros(shapes[info.name], info.dtype) for info in graph.inputs}
    values["counts"][...] = 1
    return graph, values
