"""Language models from GGUF, run on the device and held to forward passes in float64."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import vklab
from support.language import gpt2_models, llama_models
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.graphs.models import model_graph
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.stored import StoredTensor

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
MIX = {
    "attn_v": "Q6_K",
    "ffn_down": "Q5_K",
    "ffn": "Q4_K",
    "token": "Q6_K",
    "attn_q": "F16",
    "attn_k": "Q5_1",
    "output": "Q4_0",
}
# The first has groups of queries and a tied embedding; the last a mix of formats, two tables of
# weights, partly rotated heads and another base of frequencies.
MODELS = {
    "llama": {},
    "qwen2": {"architecture": "qwen2"},
    "qwen3": {"architecture": "qwen3", "qwen3.attention.key_length": 32},
    "mix": {"width": 256, "hidden": 512, "kinds": MIX, "tied": False,
            "llama.rope.freq_base": 5e5, "llama.rope.dimension_count": 32},
    "divisors": {"divisors": 8, "llama.rope.freq_base": 5e5},
    "linear": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    "floats": {"kv_heads": 4, "kinds": {"token": "F32", "ffn": "BF16", "attn": "F16"}},
}  # fmt: skip


def empty_cache(graph):
    """Return a cache without steps for each input of a graph's cache."""
    shapes = {info.name: info.shape for info in graph.inputs if info.name.startswith("past_")}
    return {
        name: np.zeros((1, heads, 0, size), np.float32)
        for name, (_, heads, _, size) in shapes.items()
    }


def run(session, cache, tokens, start):
    """Return logits after some tokens, and the cache with them."""
    positions = np.arange(start, start + len(tokens))[None]
    found = session.run({"tokens": np.array([tokens]), "positions": positions, **cache})
    return found["logits"][0], {name: found[name.removeprefix("past_")] for name in cache}


@pytest.mark.parametrize("model", seeds(*MODELS))
def test_logits_are_those_of_float64_at_once_and_in_parts(model, device):
    file = llama_models.tiny_model(**MODELS[model])
    check(file, llama_models.logits(file, TOKENS), device)


@pytest.mark.slow
def test_gpt2_is_that_of_float64(device):
    file = gpt2_models.tiny_gpt2()
    check(file, gpt2_models.logits(file, TOKENS), device)


def check(file, expected, device):
    """Demand a model's logits, of all tokens at once and of a few at a time.

    Where the device rounds rows as the file permits, the logits without it are held, too.
    """
    graph = model_graph(file, every_logit=True)
    if not hold(graph, expected, device):
        with settings.settings(PRECISION="exact"):
            assert hold(graph, expected, device)


def hold(graph, expected, device):
    """Demand logits near the expected ones, and tell whether no row is rounded."""
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        at_once, _ = run(session, empty_cache(graph), TOKENS, 0)
        cache, parts, start = empty_cache(graph), [], 0
        for size in (5, 1, 2):  # a prompt, a token, and a part of a prompt
            logits, cache = run(session, cache, TOKENS[start : start + size], start)
            parts.append(logits)
            start += size
        is_exact, bound = nearness(session)
    for found in (at_once, np.concatenate(parts)):
        assert abs(found - expected).max() < bound * abs(expected).max()
    return is_exact


def nearness(session):
    """Return whether a session's last plan rounds no row, and the bound of its logits.

    A code of int8 is off by 1/254 of the largest of its group at most, which adds half a per cent
    to each of the eight products in a row: 0.5 and 1.5 % of the largest logit were measured.
    """
    is_exact = not any(each.kernel == "matvec_units" for each in session.plan.dispatches)
    return is_exact, 1e-5 if is_exact else 0.03


def test_a_file_is_loaded_and_its_weights_stay_blocks(tmp_path, device):
    made = llama_models.tiny_model()
    path = tmp_path / "tiny.gguf"
    write_gguf(path, made.metadata, made.tensors.values())
    file = read_gguf(path)
    graph = model_graph(file, 16)
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        found, _ = run(session, empty_cache(graph), TOKENS, 0)
        weights = sum(chunk.memory.weights_bytes for chunk in session.plan.chunks)
        kernels = {dispatch.kernel for dispatch in session.plan.dispatches}
        _, bound = nearness(session)
    expected = llama_models.logits(made, TOKENS)[-1:]
    assert abs(found - expected).max() < bound * abs(expected).max()
    tables = 2 * 16 * 8 * 4  # cosines and sines of 16 positions, 8 pairs each
    assert file.size_bytes + tables <= weights < file.size_bytes + tables + 1024
    assert "gather_blocks" in kernels and kernels & {"matvec_blocks", "matvec_units"}


def test_loading_copies_no_weights_on_the_host(tmp_path, device):
    made, rows = llama_models.tiny_model(width=256, hidden=256, layers=1), 60_000
    table = StoredTensor("token_embd.weight", "F16", (rows, 256), np.zeros((rows, 512), np.uint8))
    write_gguf(tmp_path / "m.gguf", made.metadata, {**made.tensors, table.name: table}.values())
    assert table.size_bytes > 30_000_000
    tracemalloc.start()  # NumPy's arrays count; pages of a mapped file do not
    with Decoder(tmp_path / "m.gguf", device, context=16) as decoder:
        decoder.prompt([3, 1, 4])
        assert decoder.logits.shape == (1, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < table.size_bytes / 2
