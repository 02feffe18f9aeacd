"""Choose the builder of a model's graph by the architecture that its file names."""

from __future__ import annotations

import numpy as np

from vklab.apps.llm.graphs import gpt2, llama, unused
from vklab.apps.llm.graphs.build import BoundedCache
from vklab.apps.llm.tokens.vocabulary import KEY, Vocabulary
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError
from vklab.graph.graph import Graph

# Positions of the cache: its products do not depend on them.
CONTEXT = 64
BUILDERS = {**dict.fromkeys(llama.ARCHITECTURES, llama.llama_graph), "gpt2": gpt2.gpt2_graph}


def model_graph(
    file: GgufFile,
    context: int | None = None,
    every_logit: bool = False,
    bounded: BoundedCache | None = None,
) -> Graph:
    """Return the graph of a language model, for `vklab.load`.

    Its inputs are `tokens` and `positions`, int64 [batch, steps], and for layer i the cache
    `past_key.i` and `past_value.i`, float32 [batch, heads, past, head]. Its outputs are `logits`,
    float32 [batch, 1 or steps, tokens of the vocabulary], and the longer caches `key.i`, `value.i`.

    With a bounded cache `tokens` is int32, caches are as in `vklab.ops.cache`, written in place,
    and instead of `positions` there are `lengths`, the rows of each sequence so far, and `counts`,
    the steps of this run that are no padding, int32 [batch].

    Args:
        file: the GGUF file; its weights are not copied.
        context: the most positions; default the model's own.
        every_logit: return the logits after every token, not after the last only.
        bounded: the form of a cache of `context` positions; None for a cache that grows.

    Raises ModelError for an unknown architecture, for metadata or tensors that are missing or do
    not fit, and for those that change the numbers and are not used. An UnusedWarning names others.
    """
    graph = BUILDERS[_architecture(file)](file, context, every_logit, bounded)
    unused.warn(file)
    return graph


def unused_entries(file: GgufFile) -> tuple[unused.Unused, ...]:
    """Return what neither the graph nor the tokenizer reads of a file; the unknown comes first."""
    BUILDERS[_architecture(file)](file, 1)
    if f"{KEY}.model" in file.metadata:
        Vocabulary.of(file)
        file.metadata.get("tokenizer.chat_template")
    return unused.entries(file)


def _architecture(file: GgufFile) -> str:
    """Return the architecture that a file names; ModelError for an unknown one, or no model."""
    unused.require_model(file)
    name = file.text("general.architecture")
    if name not in BUILDERS:
        raise ModelError(
            f"{file.name} holds a {name!r} model; graphs are built for {', '.join(BUILDERS)}"
        )
    return name


def trained_context(file: GgufFile) -> int:
    """Return the positions that a model is trained for; ModelError if its file does not tell."""
    key = f"{_architecture(file)}.context_length"
    value = file.number(key)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"{file.name}: metadata {key!r} is {value}, no size")
    return min(value, llama.MOST_CONTEXT)


def single_step(file: GgufFile) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return the graph of a model with a small bounded cache, and inputs of its first step.

    Raises ModelError as `model_graph` does.
    """
    graph = model_graph(file, min(CONTEXT, trained_context(file)), bounded=BoundedCache("F16", 1))
    shapes = {
        info.name: tuple(size if isinstance(size, int) else 1 for size in info.shape)
        for info in graph.inputs
    }
    values = {info.name: np.zeros(shapes[info.name], info.dtype) for info in graph.inputs}
    values["counts"][...] = 1
    return graph, values
