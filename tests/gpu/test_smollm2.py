"""SmolLM2-135M-Instruct, trained by others and quantised by others: logits, words, perplexity."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import vklab
from support.language import llama_models, smollm2, trained_model
from vklab.apps.llm import perplexity as measuring
from vklab.apps.llm.graphs.models import model_graph
from vklab.apps.llm.judged import Reading
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf

pytestmark = [pytest.mark.slow, smollm2.needs_smollm2]

PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
# What llama.cpp makes of the prompt, and its likeliest answer: "The capital of France is Paris."
PROMPT_TOKENS = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30, 2]
# Perplexity of llama.cpp's CPU backend on the first chunks of the held-out text, with the weights
# widened to float32: with Q4_1 it shortens activations to eight bits, which gives 45.3412.
CONTEXT, CHUNKS, PERPLEXITY = 128, 4, 45.8507


@functools.cache
def file():
    return read_gguf(smollm2.FILE)


def logits(tokens, device):
    graph = model_graph(file(), len(tokens), every_logit=True)
    fed = {
        info.name: np.zeros((1, info.shape[1], 0, info.shape[3]), np.float32)
        for info in graph.inputs
        if info.name.startswith("past_")
    }
    with vklab.load(graph, device, outputs=["logits"]) as session:
        positions = np.arange(len(tokens))[None]
        found = session.run({**fed, "tokens": np.array([tokens]), "positions": positions})
    return found["logits"][0]


def test_the_answer_is_llama_cpps(device):
    tokenizer = Tokenizer(file())
    assert tokenizer.encode(PROMPT, parse_special=True) == PROMPT_TOKENS
    assert tokenizer.decode(ANSWER) == "The capital of France is Paris."
    choices = logits([*PROMPT_TOKENS, *ANSWER], device).argmax(axis=1)
    assert choices[len(PROMPT_TOKENS) - 1 : -1].tolist() == ANSWER


def test_logits_are_those_of_float64(device):
    expected = llama_models.logits(file(), PROMPT_TOKENS)
    found = logits(PROMPT_TOKENS, device)
    assert abs(found - expected).max() < 1e-5 * abs(expected).max()


def test_perplexity_is_llama_cpps(device):
    found = measuring.perplexity(
        file(), trained_model.held_out(), CONTEXT, most_chunks=CHUNKS, how=Reading(device=device)
    )
    assert found.value == pytest.approx(PERPLEXITY, rel=0.001), found
