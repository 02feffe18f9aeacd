"""A graph that only chooses tokens, and logits for tests of it."""

from __future__ import annotations

import numpy as np

from vklab.apps.llm import sampling
from vklab.graph.graph import Graph, Node
from vklab.types import TensorInfo

OUTPUTS = ("token", "next_recent", "next_step", "probability")


def sampling_graph(
    batch: int, vocabulary: int, size: int = 64, dtype: str = "int64", sets: int = 1,
    logits: str = "float32", steps: str = "int64",
) -> Graph:  # fmt: skip
    """Return a graph of one SampleToken whose inputs are all fed."""
    inputs = (
        TensorInfo("logits", logits, (batch, vocabulary)),
        TensorInfo("recent", dtype, (batch, size)),
        TensorInfo("step", steps, (batch,)),
        TensorInfo("options", "uint32", (sets, 12)),
    )
    node = Node("sample", "SampleToken", tuple(i.name for i in inputs), OUTPUTS, {}, "vklab", 1)
    infos = {info.name: info for info in inputs}
    return Graph("test", 21, (node,), inputs, OUTPUTS, {}, infos, {"": 21, "vklab": 1})


def random_logits(vocabulary: int, seed: int, spread: float = 3) -> np.ndarray:
    """Return logits with the spread of a language model's, in steps that make some equal."""
    x = np.random.default_rng(seed).standard_normal(vocabulary) * spread
    return (np.round(x * 64) / 64).astype(np.float32)


def expected(
    logits: np.ndarray, history: np.ndarray, options: sampling.SamplingOptions, sequence: int = 0
) -> int:
    """Return the reference's token after a history."""
    draw = sampling.random_word(options.seed, len(history), sequence)
    return sampling.sample(logits, history, options, draw)
