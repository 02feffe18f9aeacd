"""Memory of a decoder: matrices and caches beyond a binding, and a cache of int8."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.language import llama_models
from vklab import settings
from vklab.apps.llm import perplexity
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.errors import PlanError
from vklab.runtime import open_devices, upload
from vklab.runtime.observe import each_variant
from vklab.vulkan.memory import DEVICE_LOCAL, Allocator, Buffer

DATA = Path(__file__).parents[2] / "data"
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
BOUNDS = {"F16": 2e-3, "Q8_0": 2e-2}


@pytest.fixture(autouse=True)
def in_float32():
    """Multiply in float32 on every device: a GPU rounds activations of products to int8."""
    with settings.settings(DISABLE_INTEGER_DOT=True):
        yield


def error(found, expected):
    return abs(found - expected).max() / abs(expected).max()


@pytest.mark.parametrize("cache", ["F16", "Q8_0"])
def test_matrices_beyond_a_binding_are_cut_between_rows(cache, device, monkeypatch):
    file = llama_models.tiny_model(width=256, hidden=512, tied=False, kinds={"": "Q8_0"})
    expected = llama_models.logits(file, TOKENS)[-1]
    opened = open_devices.open_device(device)

    def narrow(size):
        limits = {**opened.info.limits, "maxStorageBufferRange": size}
        monkeypatch.setattr(opened, "info", replace(opened.info, limits=limits))

    narrow(64 << 10)  # a matrix of 512 x 256 takes 136 KiB
    with settings.settings(FALLBACK=False), Decoder(file, device, cache=cache) as decoder:
        decoder.prompt(TOKENS)
        assert error(decoder.logits[0], expected) < BOUNDS[cache]
        [*found] = decoder.generate(limit=2)
        dispatches = decoder.model.binding(1).program.chunk.dispatches
    bound = [info.size_bytes for d in dispatches for _, info in d.reads + d.writes]
    assert len(found) == 2 and 32 << 10 < max(bound) <= 64 << 10
    narrow(1 << 10)
    with pytest.raises(
        PlanError,
        match=r"the cache past_key.0: .* takes \d+ bytes; a kernel on "
        r".* reads 1024 at most: choose a smaller context",
    ):
        Decoder(file, device, cache=cache)


@pytest.mark.usefixtures("unmapped")
def test_a_load_copies_neither_a_table_nor_a_cache_on_the_host(device, monkeypatch):
    monkeypatch.setattr(upload, "STAGING_BYTES", 1 << 20)
    file = llama_models.tiny_model(
        width=256, hidden=512, vocabulary=1 << 15, **{"llama.context_length": 4096}
    )
    table, context = file.tensor("token_embd.weight").size_bytes, 4096

    def peak():
        tracemalloc.start()
        try:
            with Decoder(file, device, context) as decoder:
                assert decoder.sizes.cache_bytes >= 4 << 20
                return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with each_variant.applied(each_variant.Variant(as_gpu=True), device):  # splits blocks
        Decoder(file, device, context).close()  # makes the kernels
        assert peak() < 4 << 20 < table // 2


def test_staging_takes_little_of_the_hosts_memory(opened, monkeypatch):
    types = tuple(
        replace(each, bits=each.bits & ~DEVICE_LOCAL) for each in opened.device.info.memory_types
    )
    monkeypatch.setattr(opened.device, "info", replace(opened.device.info, memory_types=types))
    allocator = Allocator(opened.device)
    with (
        Buffer(allocator, upload.STAGING_BYTES, "staging"),
        Buffer(allocator, 64, "staging"),
        Buffer(allocator, 64, "readback"),
    ):
        assert upload.STAGING_BYTES < allocator.reserved_bytes <= 32 << 20


@pytest.mark.full
def test_a_cache_of_int8_predicts_a_text_as_well(device_index):
    file = read_gguf(DATA / "novels_llama.gguf")
    tokens = Tokenizer(file).encode((DATA / "held_out.txt").read_text("utf-8")[:4000])
    rows = perplexity.chunks(tokens, 128)[:3].tolist()
    found, sizes = {}, {}
    for kind in ("F32", "Q8_0"):
        with Decoder(file, device_index, 128, cache=kind, every_logit=True) as decoder:
            sizes[kind] = decoder.sizes.cache_bytes
            found[kind] = []
            for row in rows:
                decoder.rewind()
                decoder.prompt(row)
                found[kind].append(decoder.logits[0])
    assert sizes["Q8_0"] * 128 == sizes["F32"] * 34  # bytes of 32 elements
    logits = {kind: np.array(each, np.float64) for kind, each in found.items()}
    assert error(logits["Q8_0"], logits["F32"]) < 1.5e-2
    chances = {}
    for kind, values in logits.items():
        logs = values - np.log(np.exp(values).sum(-1, keepdims=True))
        chances[kind] = np.take_along_axis(logs[:, :-1], np.array(rows)[:, 1:, None], -1).mean()
    # Perplexity, which is the exponential, changes by less than 0.3 %.
    assert abs(chances["Q8_0"] - chances["F32"]) < 3e-3


@pytest.mark.usefixtures("unmapped")
def test_a_load_tells_the_bytes_that_are_on_the_device(device):
    seen, file = [], llama_models.tiny_model()
    with Decoder(file, device, loaded=lambda *now: seen.append(now)) as decoder:
        whole = decoder.sizes.weights_bytes
        uploaded = decoder.model.session.states[0].weights.uploaded_bytes
    assert seen[0] == (0, whole) and seen[-1] == (whole, whole) and seen == sorted(seen)
    assert len(seen) > len(file.tensors) // 2 and uploaded > whole // 2

    def interrupted(done, of):
        if done > of // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Decoder(file, device, loaded=interrupted)
    with Decoder(file, device) as decoder:
        decoder.prompt(TOKENS)
        expected = llama_models.logits(file, TOKENS)[-1]
        assert error(decoder.logits[0], expected) < BOUNDS["F16"]
