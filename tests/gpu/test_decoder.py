"""Decoder: prompts in chunks, steps and generated tokens, held to forward passes in float64."""

from __future__ import annotations

import numpy as np
import pytest

from support.language import gpt2_models, llama_models
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.cli.chat import Preparation
from vklab.apps.llm.decode import cached_model, memory
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.graphs.llama import LlamaSizes
from vklab.apps.llm.sampling import SamplingOptions, random_word, sample
from vklab.errors import ModelError, PlanError, VklabError
from vklab.runtime import open_devices
from vklab.runtime.bound import programs

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
PARTLY = {"width": 256, "hidden": 512, "tied": False, "llama.rope.dimension_count": 32}
MODELS = {
    "llama": {},
    "qwen3": {"architecture": "qwen3", "qwen3.attention.key_length": 32},
    "partly": PARTLY,
    "three": {"width": 144, "heads": 9, "kv_heads": 3, "kinds": {"": "F16"}},
}
# Of the largest logit. Keys and values are rounded to 11 bits, or to 8 of the largest of 32.
BOUNDS = {"F32": 1e-5, "F16": 2e-3, "Q8_0": 2e-2}


@pytest.fixture(autouse=True)
def in_float32(request):
    """Multiply in float32 on every device: a GPU rounds activations of products to int8 or half."""
    index = (
        request.node.callspec.params.get("device_index")
        if hasattr(request.node, "callspec")
        else None
    )
    fast = index is not None and not open_devices.open_device(index).info.is_cpu
    with settings.settings(DISABLE_INTEGER_DOT=True, DISABLE_VARIANTS=fast):
        yield


@pytest.fixture(scope="module")
def tiny():
    """Return a model, whose graphs are planned and kernels compiled once for this file."""
    return llama_models.tiny_model()


def error(found, expected):
    return abs(found - expected).max() / abs(expected).max()


@pytest.mark.parametrize("cache", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("name", seeds(*MODELS))
def test_logits_are_those_of_float64(name, cache, device):
    file = llama_models.tiny_model(**MODELS[name])
    if cache == "Q8_0" and LlamaSizes.of(file).head % 32:
        with pytest.raises(ModelError, match="heads of whole blocks of 32 elements, not of 16"):
            Decoder(file, device, cache=cache)
        return
    expected = llama_models.logits(file, TOKENS)
    with settings.settings(FALLBACK=False), Decoder(file, device, cache=cache) as decoder:
        found = {}
        for part in (TOKENS[:6], TOKENS[6:7], TOKENS[7:]):
            decoder.prompt(part)
            found[decoder.lengths[0]] = decoder.logits
    for length, logits in found.items():
        assert logits.shape == (1, 45) and logits.dtype == np.float32
        assert error(logits[0], expected[length - 1]) < BOUNDS[cache]


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["F32", "F16"])
def test_gpt2_is_that_of_float64(cache, device):
    file = gpt2_models.tiny_gpt2()
    expected = gpt2_models.logits(file, TOKENS)
    with settings.settings(FALLBACK=False), Decoder(file, device, cache=cache) as decoder:
        decoder.prompt(TOKENS[:6])
        for token in TOKENS[6:]:
            decoder.step(token)
        assert error(decoder.logits[0], expected[-1]) < BOUNDS[cache]


@pytest.mark.full
def test_long_prompts_go_through_chunks(tiny, device):
    tokens = [(7 * i) % 45 for i in range(61)]
    expected = llama_models.logits(tiny, tokens)
    with Decoder(tiny, device, cache="F32", every_logit=True) as decoder:
        decoder.prompt(tokens)
        found = decoder.logits
    assert found.shape == (1, 61, 45) and error(found[0], expected) < BOUNDS["F32"]


def test_sequences_of_different_length(tiny, device):
    parts = [[TOKENS[:3], TOKENS[:8]], [TOKENS[3:5], []], [[2], [4]]]
    whole = [sum((part[i] for part in parts), []) for i in range(2)]
    with Decoder(tiny, device, batch=2, cache="F32") as decoder:
        for part in parts[:2]:
            decoder.prompt(part)
        after_two = decoder.logits
        decoder.step([2, 4])
        found, lengths = decoder.logits, decoder.lengths
        chosen = list(decoder.generate(limit=4))
        stopped = [pair[1] for pair in chosen]
        decoder.rewind(lengths)
        again = list(decoder.generate(stop_tokens=[chosen[1][0]], limit=4))
    assert lengths == (6, 9)
    for number in range(2):
        expected = llama_models.logits(tiny, whole[number])
        assert error(found[number], expected[-1]) < BOUNDS["F32"]
        assert error(after_two[number], expected[-2]) < BOUNDS["F32"]
        text = list(whole[number])
        for _ in range(4):
            text.append(int(llama_models.logits(tiny, text)[-1].argmax()))
        assert [pair[number] for pair in chosen] == text[-4:]
    ended = again[0][0] is None
    assert ended or again[1][0] is None
    assert stopped[: len(again)] == [pair[1] for pair in again] or None in again[-1]


def test_a_prefix_is_kept(tiny, device):
    other = [*TOKENS[:4], 8, 8, 7]
    with Decoder(tiny, device, cache="F32") as decoder:
        decoder.prompt(TOKENS)
        decoder.rewind(4)
        with pytest.raises(VklabError, match="there are no logits before the first prompt"):
            _ = decoder.logits
        decoder.prompt(other[4:])
        assert decoder.lengths == (7,)
        assert error(decoder.logits[0], llama_models.logits(tiny, other)[-1]) < BOUNDS["F32"]
        for length in (8, -1, [1, 1]):
            with pytest.raises(ModelError, match="rewind to"):
                decoder.rewind(length)


def test_generated_tokens_are_those_of_the_reference(device):
    file = llama_models.tiny_model(**PARTLY)
    options = SamplingOptions(temperature=1.5, top_k=20, top_p=0.9, repeat_penalty=1.3, seed=7)
    with Decoder(file, device, cache="F32") as decoder:
        decoder.prompt(TOKENS)
        found = list(decoder.generate(options, limit=9))
        assert decoder.lengths == (len(TOKENS) + 8,)
        logits = decoder.logits
        decoder.rewind(len(TOKENS))
        assert list(decoder.generate(options, stop_tokens=found[5:6], limit=9)) == found[:5]
        assert decoder.lengths == (len(TOKENS) + 5,)  # those that were yielded
        assert error(decoder.logits[0], llama_models.logits(file, TOKENS + found[:5])[-1]) < 1e-5
    text = list(TOKENS)
    for token in found:
        expected = llama_models.logits(file, text)[-1]
        draw = random_word(options.seed, len(text))
        assert token == sample(expected, text, options, draw), text
        text.append(token)
    assert error(logits[0], llama_models.logits(file, text[:-1])[-1]) < BOUNDS["F32"]


def test_memory_that_the_host_cannot_map(tiny, device_index, unmapped):
    with settings.settings(DISABLE_DIRECT_IO=True), Decoder(tiny, device_index) as decoder:
        for tokens in (TOKENS[:4], TOKENS[4:]):  # the second time in the other turn
            decoder.prompt(tokens)
            found, text = list(decoder.generate(limit=3)), list(TOKENS[: decoder.lengths[0] - 2])
            decoder.rewind(len(text))
            for token in found:
                logits = llama_models.logits(tiny, text)[-1]
                assert logits[token] > logits.max() - 2e-3 * abs(logits).max()
                text.append(token)


def test_one_recording_is_replayed_for_each_token(tiny, device, monkeypatch):
    recorded = []
    record = programs.Program.record
    monkeypatch.setattr(
        programs.Program,
        "record",
        lambda self, *more: (recorded.append(self), record(self, *more))[1],
    )
    with Decoder(tiny, device) as decoder:
        decoder.prompt(TOKENS[:3])
        for token in TOKENS:
            decoder.step(token)
        assert len(recorded) == 2  # one step, eight steps
        list(decoder.generate(limit=20))
        count = len(recorded)
        assert count in (4, 5)  # two or three that swap the token, while one is in flight
        list(decoder.generate(limit=20))
        assert len(recorded) == count


def test_what_is_prepared_is_not_recorded_again(tiny, device, monkeypatch):
    recorded = []
    record = programs.Program.record
    monkeypatch.setattr(
        programs.Program,
        "record",
        lambda self, *more: (recorded.append(self), record(self, *more))[1],
    )
    with Decoder(tiny, device, context=40) as decoder:
        decoder.prepare(lambda: len(decoder.model._bindings) < 2)  # that for one step is there
        assert sorted(decoder.model._bindings) == [1, 8] and not decoder.model._loops
        preparation = Preparation(decoder.prepare)
        preparation._thread.join()
        preparation.end()
        count = len(recorded)
        assert sorted(decoder.model._bindings) == [1, 8, 32] and count == 4
        decoder.prompt([1] * 33)
        for token in decoder.generate(limit=3):
            assert 0 <= token < 45
        assert len(recorded) in (count + 1, count + 2)  # other turns of the loop


def test_a_preparation_stops_and_hides_no_error():
    order = []

    def prepare(is_wanted):
        order.append(is_wanted())
        while is_wanted():
            pass
        raise PlanError("no room")

    preparation = Preparation(prepare)
    preparation.end()
    preparation.end()
    assert order in ([True], [False])


def test_a_decoder_has_one_cache_and_leaves_nothing(tiny, opened):
    sizes = []
    with Decoder(tiny, opened.info.index, context=64, report=sizes.append) as decoder:
        decoder.prompt(TOKENS)
        list(decoder.generate(limit=5))
        bindings = [*decoder._model._bindings.values(), *decoder._model._loops.values()]
        places = {
            binding.inputs["past_key.1"].home.place(("past_key.1", False))[0]
            for binding in bindings
        }
        assert len(bindings) == 3 and len(places) == 1
        [owner] = places
        assert owner.size_bytes < decoder.sizes.cache_bytes + 4096
        assert decoder.sizes.cache_bytes == 2 * 2 * 2 * 64 * 16 * 2  # layers, k and v, heads
    assert sizes == [decoder.sizes]
    assert "weights 72.0 KiB, cache of 64 positions 16.0 KiB" in str(sizes[0])
    decoder.close()
    for call in (
        lambda: decoder.prompt([1]),
        lambda: decoder.logits,
        decoder.generate,
        decoder.rewind,
    ):
        with pytest.raises(VklabError, match="this decoder is closed; make another"):
            call()


def test_bad_tokens_are_refused_before_they_reach_the_device(tiny, device):
    with Decoder(tiny, device, context=16) as decoder:
        for tokens, message in (
            ([], "the prompt is empty"),
            ([45], "token 45 is none of the 45 of this model"),
            ([3, -1], "token -1"),
            ([1.5], "token 1.5"),
            ([True], "token True"),
            ("text", "a prompt is a list of tokens"),
            (3, "a prompt is a list of tokens"),
            ([[1], [2]], "a list for each"),
            ([1] * 17, "17 tokens after 0 do not fit a context"),
        ):
            with pytest.raises(ModelError, match=message):
                decoder.prompt(tokens)
        with pytest.raises(ModelError, match="give a prompt first"):
            decoder.generate()
        with pytest.raises(ModelError, match="step takes one token"):
            decoder.step([1, 2])
        decoder.prompt([1] * 15)
        assert len(list(decoder.generate())) == 2  # one more than the context has room for
        with pytest.raises(ModelError, match="limit=-1"):
            decoder.generate(limit=-1)


def test_what_does_not_fit_is_refused_with_the_numbers(tiny, device, monkeypatch):
    for more, message in (
        ({"context": 65}, "trained for 64 positions"),
        ({"batch": 0}, "batch=0"),
        ({"cache": "F8"}, "unknown format 'F8' of a cache"),
    ):
        with pytest.raises(ModelError, match=message):
            Decoder(tiny, device, **more)
    monkeypatch.setattr(memory.Sizes, "total_bytes", 1 << 50)
    with pytest.raises(PlanError, match="does not fit .*: weights 72.0 KiB, cache of 64 positions"):
        Decoder(tiny, device)


def test_an_interrupt_leaves_a_usable_decoder(tiny, device, monkeypatch):
    with Decoder(tiny, device, cache="F32") as decoder:
        decoder.prompt(TOKENS[:3])
        tokens = decoder.generate()
        next(tokens)
        next(tokens)
        decoder.prompt([9])  # closes the iterator
        assert next(tokens, None) is None and decoder.lengths == (5,)
        wait, calls = programs.Program.wait, []

        def interrupted(self):
            calls.append(self)
            if len(calls) == 1:
                raise KeyboardInterrupt
            wait(self)

        monkeypatch.setattr(programs.Program, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decoder.prompt([1, 2])
        assert decoder.lengths == (5,)
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            list(decoder.generate())
        monkeypatch.undo()
        decoder.rewind(3)
        decoder.prompt(TOKENS[3:])
        assert error(decoder.logits[0], llama_models.logits(tiny, TOKENS)[-1]) < BOUNDS["F32"]


@pytest.mark.parametrize(("left", "steps"), [
    (1, 1), (2, 8), (8, 8), (9, 8), (16, 8), (17, 32), (33, 32), (65, 128), (500, 512), (700, 512),
])  # fmt: skip
def test_chunks(left, steps):
    assert cached_model.chunk_of(left) == steps
    above = min([each for each in cached_model.STEPS if each >= left], default=512)
    assert cached_model.chunk_of(left, pads=True) == above


def test_the_default_context_leaves_room():
    assert memory.fitting_context(2048, 1000, 10, 1 << 40) == 2048
    assert memory.fitting_context(131072, 1000, 10, 1 << 40) == 4096
    assert memory.fitting_context(131072, 1000, 1000, 5 * 10**6) == 2048
    assert memory.fitting_context(131072, 1000, 1000, 0) == 256
