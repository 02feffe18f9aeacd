"""The choice of a token on the device, held to the NumPy reference token for token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vklab
from support.graphs.sampling_graph import expected, random_logits, sampling_graph
from support.runs.tiers import seeds
from vklab import settings
from vklab.apps.llm.sampling import LOG2_E, SamplingOptions, ring, weights
from vklab.errors import ModelError

OPTIONS = {
    "default": SamplingOptions(),
    "greedy": SamplingOptions(temperature=0),
    "penalties": SamplingOptions(repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2,
                                 repeat_last=50, temperature=2),
    "all": SamplingOptions(top_k=0, top_p=1, min_p=0),
    "top_p": SamplingOptions(top_k=0, top_p=0.9, min_p=0),
    "top_p of a flat distribution": SamplingOptions(top_k=0, top_p=0.99, min_p=0, temperature=5),
    "min_p": SamplingOptions(top_k=0, top_p=1, min_p=0.1),
    "top_k of 200": SamplingOptions(top_k=200, min_p=0, temperature=3),
    "top_k of 1,000": SamplingOptions(top_k=1000, top_p=1, min_p=0, temperature=3),
    "top_k of 3,000": SamplingOptions(top_k=3000, top_p=0.95, min_p=0),
    "top_k of one": SamplingOptions(top_k=1),
    "tiny top_p": SamplingOptions(top_p=1e-6, temperature=9),
    "min_p of one": SamplingOptions(min_p=1, temperature=9, top_p=1),
    "cold": SamplingOptions(temperature=0.01),
}  # fmt: skip
INFINITY, FLAT = np.float32(np.inf), np.zeros(2100, np.float32)
NOT_NUMBERS = np.array([np.nan, INFINITY, -INFINITY, -np.nan, 1, 1e-42, -1e-42, -0.0], np.float32)
STRANGE = {
    "equal": FLAT,
    "many equal": np.repeat(np.float32([1, 3, 2, 3, -1]), 700),
    "one number": np.where(np.arange(2100) == 1500, np.float32(-3), -INFINITY),
    "no number": np.where(np.arange(2100) % 2, np.float32(np.nan), -INFINITY),
    "NaN and infinity": np.resize(NOT_NUMBERS, 2100),
    "close": (np.arange(2100, dtype=np.uint32) % 1300 + 0x40000000).view(np.float32),
    "huge": np.linspace(-3e38, 3e38, 2100, dtype=np.float32),
    "falling": np.linspace(20, -20, 2100, dtype=np.float32),
    "a run of candidates": np.where(np.arange(5000) < 1500, random_logits(5000, 5) + 40, FLAT[0]),
}


def feed(logits, histories, options, size=64, dtype=np.int64):
    """Return the inputs for sequences with a history each."""
    return {
        "logits": logits,
        "recent": np.stack([ring(h, size, dtype) for h in histories]),
        "step": np.array([len(history) for history in histories]),
        "options": np.concatenate([each.words() for each in options]),
    }


def check(session, logits, history, options):
    """Demand the reference's token, and the next ring and step."""
    found = session.run(feed(logits[None], [history], [options]))
    token = expected(logits, history, options)
    assert found["token"].tolist() == [[token]], options
    assert found["next_recent"].tolist() == [ring([*history, token]).tolist()]
    assert found["next_step"].tolist() == [len(history) + 1]
    assert 0 < found["probability"][0, 0] <= 1


def load(device, *sizes, **more):
    """Load a graph of one SampleToken."""
    with settings.settings(FALLBACK=False):
        return vklab.load(sampling_graph(*sizes, **more), device)


def check_options(vocabulary, device, repeats):
    """Demand the reference's tokens for all options, several seeds and histories."""
    with load(device, 1, vocabulary) as session:
        for seed, options in enumerate(OPTIONS.values()):
            history = np.random.default_rng(seed).integers(0, min(vocabulary, 40), 20 * seed)
            for each in range(repeats):
                drawn = replace(options, seed=7919 * each + 2**40)
                check(session, random_logits(vocabulary, 10 * seed + each), history, drawn)


@pytest.mark.parametrize("vocabulary", seeds(1031, 7, 1024, 1025, 4099))
def test_tokens_are_the_references(vocabulary, device):
    check_options(vocabulary, device, 4)


@pytest.mark.full
def test_tokens_of_a_language_model(device):
    check_options(32000, device, 1)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [128_256, 262_208])
def test_tokens_of_a_large_vocabulary(vocabulary, device):
    check_options(vocabulary, device, 2)


@pytest.mark.parametrize("name", seeds(*STRANGE))
def test_strange_logits(name, device):
    logits = STRANGE[name]
    with load(device, 1, len(logits)) as session, np.errstate(invalid="ignore"):
        for seed, options in enumerate(OPTIONS.values()):
            check(session, logits, [0, 1, 1500, 3, 3], replace(options, seed=seed))


@pytest.mark.slow
def test_every_small_top_k(device):
    with load(device, 1, 1031) as session:
        for k in (*range(1, 60), 255, 256, 257, 1030, 1031, 1032):
            options = SamplingOptions(top_k=k, top_p=1, min_p=0, temperature=1e6, seed=k)
            check(session, random_logits(1031, k), [], options)


@pytest.mark.full
def test_sequences_have_numbers_and_options_of_their_own(device):
    logits = np.stack([random_logits(1100, seed) for seed in range(5)])
    histories = [list(range(3 * i)) for i in range(5)]
    options = [SamplingOptions(seed=9, temperature=1 + i, repeat_penalty=1.1) for i in range(5)]
    for dtype, size, sets in ((np.int32, 7, 1), (np.int64, 1000, 5)):
        with load(device, 5, 1100, size, np.dtype(dtype).name, sets) as session:
            found = session.run(feed(logits, histories, options[:sets], size, dtype))
        each = [replace(options[i % sets], repeat_last=min(64, size)) for i in range(5)]
        wanted = [[expected(logits[i], histories[i], each[i], i)] for i in range(5)]
        assert found["token"].tolist() == wanted and found["token"].dtype == dtype


@pytest.mark.slow
def test_logits_may_be_halves_with_an_axis_of_steps(device):
    logits = random_logits(300, 0).astype(np.float16)
    graph = sampling_graph(1, 300, logits="float16", steps="int32")
    shaped = replace(graph.infos["logits"], shape=(1, 1, 300))
    graph = replace(
        graph, inputs=(shaped, *graph.inputs[1:]), infos={**graph.infos, "logits": shaped}
    )
    with settings.settings(FALLBACK=False), vklab.load(graph, device) as session:
        fed = feed(logits[None, None], [[4]], [SamplingOptions(top_k=0)])
        found = session.run({**fed, "step": fed["step"].astype(np.int32)})
    assert found["token"].item() == expected(logits, [4], SamplingOptions(top_k=0))
    assert found["next_step"].dtype == np.int32


@pytest.mark.parametrize("top_k", seeds(40, 0))
def test_draws_have_the_distribution_of_softmax(top_k, device):
    options = SamplingOptions(temperature=0.8, top_k=top_k, top_p=1, min_p=0, seed=1)
    count, rounds = 512, 4
    logits = np.linspace(2, -2, 20, dtype=np.float32)
    with load(device, count, 20) as session:
        tokens = [
            session.run(feed(np.tile(logits, (count, 1)), [[0] * step] * count, [options]))
            for step in range(rounds)
        ]
    chances = np.exp(logits / options.temperature)
    wanted = chances / chances.sum() * count * rounds
    drawn = np.bincount(np.concatenate([t["token"].ravel() for t in tokens]), minlength=20)
    # 99.9 % of chi-square with 19 degrees of freedom; the seeds are fixed
    assert ((drawn - wanted) ** 2 / wanted).sum() < 43.8
    assert np.allclose(
        tokens[0]["probability"].ravel() * count * rounds,
        wanted[tokens[0]["token"].ravel()],
        rtol=1e-5,
    )


def test_tokens_feed_the_next_run_without_the_host(device):
    logits, prompt, options = random_logits(1500, 3), [5, 6, 7], SamplingOptions(seed=3)
    states = {"recent": "next_recent", "step": "next_step"}
    history = list(prompt)
    with (
        load(device, 1, 1500) as session,
        session.bind(feed(logits[None], [prompt], [options]), state=states) as bound,
    ):
        for changed in (
            options,
            SamplingOptions(temperature=0),
            replace(options, top_k=0),
            replace(options, repeat_penalty=2.0),
        ):
            bound.inputs["options"][...] = changed.words()
            for _ in range(3):
                bound.run()
                history.append(expected(logits, history, changed))
                assert bound.outputs["token"].numpy().tolist() == [[history[-1]]]
        assert bound.inputs["recent"].numpy().tolist() == [ring(history).tolist()]
        assert bound.inputs["step"].numpy().tolist() == [len(history)]


@pytest.mark.slow
def test_weights_are_the_references_bit_for_bit(device):
    # With top_k 0 and one token left of two, its probability tells the sum of both weights.
    below = np.linspace(0, 22, 400, dtype=np.float32)
    logits = np.stack([np.zeros(400, np.float32), -below], 1)
    options = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0)
    with load(device, 400, 2) as session:
        found = session.run(feed(logits, [[]] * 400, [options]))
    both = np.stack([weights(np.zeros(400, np.float32), LOG2_E), weights(below, LOG2_E)], 1)
    chance = both / both.sum(1, keepdims=True, dtype=np.float64)
    taken = np.take_along_axis(chance, found["token"], 1)
    assert np.allclose(found["probability"], taken, rtol=3e-7)


@pytest.mark.parametrize(("index", "shape"), [
    (0, (2, 9, 30)), (0, (30,)), (0, (2, 600_000)), (1, (2, 0)), (1, (3, 64)), (2, (3,)),
    (3, (3, 12)), (3, (2, 11)),
])  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(index, shape):
    graph = sampling_graph(2, 30)
    inputs = list(graph.inputs)
    inputs[index] = replace(inputs[index], shape=shape)
    changed = replace(graph, inputs=tuple(inputs), infos={info.name: info for info in inputs})
    with pytest.raises(ModelError, match=r"must be \[batch, 1 to 524288\]"):
        vklab.load(changed, 0)
