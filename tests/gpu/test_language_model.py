"""The language model of data/ on the device: logits of PyTorch, and perplexity of each format."""

from __future__ import annotations

import numpy as np
import pytest
import trained_model
from tiers import seeds

import vklab
from vklab.llm import perplexity as measuring
from vklab.llm.models import model_graph

STEPS, FEW = 48, 2  # tokens of a row of logits; chunks of a quick perplexity
# The most that the perplexity may differ from the same weights in float32.
CHANGE = {"F32": 1e-6, "Q8_0": 0.002, "Q4_K": 0.025}


@pytest.mark.full
@pytest.mark.parametrize(("kind", "dtype", "most"), [
    # float32: a hundredth of what is asked for. Halves: four roundings of 2^-11, as PyTorch's.
    ("F32", None, 1e-6), ("F16", None, 1e-6), ("F16", "float16", 2e-3),
])  # fmt: skip
def test_logits_are_those_of_pytorch_in_float64(kind, dtype, most, device):
    pytest.importorskip("torch")
    row = np.array(trained_model.tokens()[:STEPS])
    expected = trained_model.torch_logits(row)
    graph = model_graph(trained_model.in_format(kind), STEPS, every_logit=True)
    fed = {info.name: np.zeros((1, info.shape[1], 0, info.shape[3]), np.float32)
           for info in graph.inputs if info.name.startswith("past_")}  # fmt: skip
    with vklab.load(graph, device, dtype=dtype) as session:
        found = session.run({**fed, "tokens": row[None], "positions": np.arange(STEPS)[None]})
    error = abs(found["logits"][0] - expected).max() / abs(expected).max()
    assert error < most, f"{error:.2g} of the largest logit"


def check(kind, chunks, device):
    """Demand a format's perplexity within its bound, and return what was measured."""
    reference = trained_model.in_format("F32" if kind != "F32" else "F16")
    found = measuring.perplexity(trained_model.in_format(kind), trained_model.held_out(),
                                 against=reference, most_chunks=chunks, device=device)
    print(found, found.against)
    assert abs(found.against.change) < CHANGE[kind], found
    return found


@pytest.mark.full
@pytest.mark.parametrize("kind", seeds("Q8_0", "Q4_K", "F32"))
def test_perplexity_of_some_chunks(kind, device):
    found = check(kind, FEW, device)
    assert 20 < found.value < 45 and found.tokens == FEW * 255
    most, least = {"F32": (1e-9, 1.0), "Q8_0": (1e-3, 0.97), "Q4_K": (0.05, 0.85)}[kind]
    assert found.against.divergence < most and found.against.agreement >= least
