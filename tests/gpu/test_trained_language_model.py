"""The language model of data/ on the device: logits of PyTorch, and perplexity of each format."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import vklab
from support.language import trained_model
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.llm import perplexity as measuring
from vklab.apps.llm.graphs.models import model_graph
from vklab.apps.llm.judged import Reading

STEPS, FEW, ALL = 48, 2, 227  # tokens of a row of logits; chunks of the held-out text
# Format, dtype of the arithmetic, and the largest error over the largest logit. float32: a
# hundredth of 1e-4. Halves: four roundings of 2^-11; PyTorch's are as far off.
LOGITS = {"F32": ("F32", None, 1e-6), "F16": ("F16", None, 1e-6),
          "halves": ("F16", "float16", 2e-3)}  # fmt: skip
# The most that the perplexity may differ from the same weights in float32.
CHANGE = {"F32": 1e-6, "Q8_0": 0.002, "Q4_K": 0.025, "Q4_K_M": 0.025}
# Perplexity by llama.cpp's CPU backend, which shortens activations to eight bits, by chunks.
LLAMA_CPP = {"F16": {FEW: 34.1263, ALL: 28.9526}, "Q8_0": {FEW: 34.1431, ALL: 28.9505},
             "Q4_K": {FEW: 34.5008, ALL: 29.2357},
             "Q4_K_M": {FEW: 34.3271, ALL: 29.0814}}  # fmt: skip
# sha256 of llama.cpp's tokens of the held-out text, as uint16.
TOKENS = "4d39f28fbe83a737d07240d52b3544c13f3aaed16e084e9b5cf88da285720216"


@pytest.mark.full
def test_tokens_are_llama_cpps():
    tokens = np.array(trained_model.tokens(), "<u2")
    assert len(tokens) == 116_394 and hashlib.sha256(tokens.tobytes()).hexdigest() == TOKENS


@pytest.mark.full
@pytest.mark.parametrize("case", seeds(*LOGITS))
def test_logits_are_those_of_pytorch_in_float64(case, device):
    pytest.importorskip("torch")
    kind, dtype, most = LOGITS[case]
    row = np.array(trained_model.tokens()[:STEPS])
    expected = trained_model.torch_logits(row)
    graph = model_graph(trained_model.in_format(kind), STEPS, every_logit=True)
    fed = {
        info.name: np.zeros((1, info.shape[1], 0, info.shape[3]), np.float32)
        for info in graph.inputs
        if info.name.startswith("past_")
    }
    with vklab.load(graph, device, dtype=dtype, outputs=["logits"]) as session:
        found = session.run({**fed, "tokens": row[None], "positions": np.arange(STEPS)[None]})
    error = abs(found["logits"][0] - expected).max() / abs(expected).max()
    assert error < most, f"{error:.2g} of the largest logit"


def check(kind, chunks, device):
    """Demand a format's perplexity within its bounds, and return what was measured."""
    reference = trained_model.in_format("F32" if kind != "F32" else "F16")
    with settings.settings(TIMEOUT=600):  # 8 s of a CPU a chunk on SwiftShader, if it has one
        found = measuring.perplexity(
            trained_model.in_format(kind),
            trained_model.held_out(),
            against=reference,
            most_chunks=chunks,
            how=Reading(device=device),
        )
    print(found, found.against)
    assert abs(found.against.change) < CHANGE[kind], found
    peer = LLAMA_CPP["F16" if kind == "F32" else kind][chunks or ALL]
    assert found.value == pytest.approx(peer, rel=0.003), found
    return found


@pytest.mark.full
@pytest.mark.parametrize("kind", seeds("Q8_0", "Q4_K_M", "Q4_K", "F32"))
def test_perplexity_of_some_chunks(kind, device):
    found = check(kind, FEW, device)
    assert found.tokens == FEW * 255
    most, least = {
        "F32": (1e-9, 1.0),
        "Q8_0": (1e-3, 0.97),
        "Q4_K": (0.05, 0.85),
        "Q4_K_M": (0.02, 0.9),
    }[kind]
    assert found.against.divergence < most and found.against.agreement >= least


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K_M"])
def test_perplexity_by_steps(kind, device):
    file = trained_model.in_format(kind)
    found = measuring.perplexity(
        file,
        trained_model.held_out(),
        most_chunks=FEW,
        against=trained_model.in_format("F32"),
        how=Reading(by_steps=True, device=device),
    )
    assert abs(found.against.change) < CHANGE[kind], found
    assert found.value == pytest.approx(LLAMA_CPP[kind][FEW], rel=0.003), found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q4_K_M"])
def test_perplexity_of_the_whole_text(kind, device):
    found = check(kind, None, device)
    assert found.chunks == ALL
    most, least = {"Q8_0": (1e-4, 0.99), "Q4_K": (0.015, 0.91), "Q4_K_M": (0.01, 0.94)}[kind]
    assert found.against.divergence < most and found.against.agreement >= least
