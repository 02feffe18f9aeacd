"""The choice of a token on the device, held to the NumPy reference token for token."""

from __future__ import annotations

import numpy as np
import pytest
from sampling_graph import expected, random_logits, sampling_graph
from tiers import seeds

import vklab
from vklab import settings
from vklab.llm.sampling import SamplingOptions, ring

OPTIONS = {
    "default": SamplingOptions(),
    "greedy": SamplingOptions(temperature=0),
    "penalties": SamplingOptions(repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2,
                                 repeat_last=50, temperature=2),
    "all": SamplingOptions(top_k=0, top_p=1, min_p=0),
    "top_p": SamplingOptions(top_k=0, top_p=0.9, min_p=0),
    "top_p of a flat distribution": SamplingOptions(top_k=0, top_p=0.99, min_p=0, temperature=5),
    "min_p": SamplingOptions(top_k=0, top_p=1, min_p=0.1),
    "top_k": SamplingOptions(top_k=1000, top_p=1, min_p=0, temperature=3),
    "large top_k": SamplingOptions(top_k=3000, top_p=0.95, min_p=0),
    "top_k of one": SamplingOptions(top_k=1),
    "tiny top_p": SamplingOptions(top_p=1e-6, temperature=9),
    "min_p of one": SamplingOptions(min_p=1, temperature=9, top_p=1),
    "cold": SamplingOptions(temperature=0.01),
}  # fmt: skip


def check(session, logits, history, options):
    """Demand the reference's token, and the next ring and step."""
    found = session.run({"logits": logits[None], "recent": ring(history)[None],
                         "step": np.array([len(history)]), "options": options.words()})
    token = expected(logits, history, options)
    assert found["token"].tolist() == [[token]], options
    assert found["next_recent"].tolist() == [ring([*history, token]).tolist()]
    assert found["next_step"].tolist() == [len(history) + 1]
    assert 0 < found["probability"][0, 0] <= 1


@pytest.mark.parametrize("vocabulary", seeds(1031, 7, 1024, 32000))
def test_tokens_are_the_references(vocabulary, device):
    with settings.settings(FALLBACK=False), vklab.load(sampling_graph(1, vocabulary), device) as s:
        for seed, options in enumerate(OPTIONS.values()):
            history = np.random.default_rng(seed).integers(0, min(vocabulary, 40), 10 + 20 * seed)
            for each in range(4):
                drawn = SamplingOptions(**{**vars(options), "seed": 7919 * each + 2**40})
                check(s, random_logits(vocabulary, 10 * seed + each), history, drawn)
