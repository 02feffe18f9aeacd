"""The choice of a token in NumPy: its steps, its random numbers and its options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.graphs.sampling_graph import random_logits
from support.runs.tiers import examples
from vklab.apps.llm.sampling import (
    LOG2_E,
    SamplingOptions,
    philox,
    random_word,
    ring,
    sample,
    weights,
)
from vklab.errors import ModelError

OPEN = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0)


@pytest.mark.parametrize(("counter", "key", "words"), [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])  # fmt: skip
def test_random_words_are_those_of_the_paper(counter, key, words):
    assert philox(counter, key) == words  # known answers of Random123


def test_random_words_differ_by_seed_step_and_sequence():
    given = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**32, 0, 0)]
    assert len({random_word(*each) for each in given}) == len(given)


def test_weights_are_powers_of_two_to_seven_digits():
    below = np.linspace(0, 15, 9999, dtype=np.float32)
    exact = 2.0**31 * 2.0 ** -(below * LOG2_E).astype(np.float64)
    assert (abs(weights(below, LOG2_E) - exact) <= 3e-7 * exact + 1).all()
    assert weights(np.float32([0, 30.5, 32, np.inf, np.nan]), np.float32(1)).tolist() == [
        2**31,
        1,
        0,
        0,
        0,
    ]


def kept(logits, options, recent=()):
    """Return the tokens that can be drawn, and their chances, by their definitions in float64."""
    x = np.array(logits, np.float64)
    for token, count in zip(*np.unique(recent, return_counts=True), strict=True):
        x[int(token)] *= options.repeat_penalty ** (-1 if x[int(token)] > 0 else 1)
        x[int(token)] -= options.presence_penalty + count * options.frequency_penalty
    order = np.argsort(-x, kind="stable")[: options.top_k or len(x)]
    p = np.exp(x[order] - x[order[0]])
    p /= p.sum()
    order = order[: np.searchsorted(np.cumsum(p), options.top_p) + 1]
    order = order[np.exp(x[order] - x[order[0]]) >= options.min_p]
    p = np.exp((x[order] - x[order[0]]) / options.temperature)
    return order, p / p.sum()


@pytest.mark.parametrize("seed", range(examples(24)))
def test_the_steps_are_their_definitions(seed):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(50).astype(np.float32) * 2
    recent = rng.integers(0, 20, 10)
    options = SamplingOptions(
        temperature=rng.uniform(0.2, 2),
        top_k=int(rng.integers(0, 30)),
        top_p=rng.uniform(0.2, 1),
        min_p=rng.uniform(0, 0.2),
        repeat_penalty=rng.uniform(0.8, 1.5),
        presence_penalty=rng.uniform(-1, 1),
        frequency_penalty=rng.uniform(-1, 1),
    )
    tokens, chances = kept(logits, options, recent)
    for draw in rng.integers(0, 2**32, 200):
        position = np.searchsorted(np.cumsum(chances), draw / 2**32, side="right")
        assert sample(logits, recent, options, int(draw)) == tokens[min(position, len(tokens) - 1)]


def test_draws_have_the_distribution_of_softmax():
    logits, count = np.linspace(2, -2, 12, dtype=np.float32), 3000
    options = replace(OPEN, temperature=0.8, seed=5)
    drawn = [sample(logits, [], options, random_word(5, step)) for step in range(count)]
    _, chances = kept(logits, options)
    wanted = chances * count
    # 99.9 % of chi-square with 11 degrees of freedom; the seed is fixed
    assert ((np.bincount(drawn, minlength=12) - wanted) ** 2 / wanted).sum() < 31.3


def test_top_p_and_min_p_come_before_the_temperature():
    logits = np.log(np.float32([0.5, 0.3, 0.15, 0.05]))
    hot = SamplingOptions(temperature=1e6, top_k=0, top_p=0.75, min_p=0)
    assert {sample(logits, [], hot, draw << 24) for draw in range(256)} == {0, 1}
    assert {
        sample(logits, [], replace(hot, top_p=1, min_p=0.25), draw << 24) for draw in range(256)
    } == {0, 1, 2}


def test_equal_logits_are_in_the_order_of_tokens():
    logits = np.float32([1, 2, 2, 0, 2])
    assert sample(logits, [], SamplingOptions(temperature=0), 0) == 1
    two = replace(OPEN, top_k=2)
    assert [sample(logits, [], two, draw) for draw in (0, 2**31 - 1, 2**31, 2**32 - 1)] == [
        1,
        1,
        2,
        2,
    ]


@pytest.mark.parametrize(("logits", "token"), [
    ([np.nan, 1, np.nan], 1), ([-np.inf, -np.inf], 0), ([np.nan, np.nan], 0), ([0, np.inf, 3], 1),
    ([-0.0, 0.0], 0), ([1e-45, 1e-40, 0], 0),
])  # fmt: skip
def test_logits_that_are_no_numbers(logits, token):
    for options in (SamplingOptions(), SamplingOptions(temperature=0), replace(OPEN, top_k=1)):
        assert sample(np.float32(logits), [], options, 0) == token


def test_penalties_reach_as_far_as_the_options_say():
    logits = random_logits(9, 0) * 0
    options = SamplingOptions(temperature=0, presence_penalty=1.0, repeat_last=2)
    assert sample(logits, [0, 1, 2], options, 0) == 0
    assert sample(logits, [0, 1, 0], options, 0) == 2
    assert sample(logits, [0, 1, 0], replace(options, repeat_last=0), 0) == 0
    assert sample(logits, [-1, 99], options, 0) == 0


def test_a_ring_has_each_token_at_its_number():
    assert ring([7, 8, 9], 5).tolist() == [7, 8, 9, 0, 0]
    assert ring(range(12), 5, np.int32).tolist() == [10, 11, 7, 8, 9]
    assert ring([], 3).tolist() == [0, 0, 0]


def test_options_become_words():
    words = SamplingOptions(top_k=7, seed=2**40 + 5).words()
    assert words.shape == (1, 12) and words.dtype == np.uint32
    assert words[0, [0, 8, 9, 10]].tolist() == [7, 64, 5, 256]
    assert SamplingOptions(temperature=0).words()[0, 0] == 1
    assert SamplingOptions(temperature=1e-30).scale == np.float32(1e30)


@pytest.mark.parametrize(("name", "value", "message"), [
    ("temperature", -1.0, r"temperature=-1.0 must be a number from 0.0 to 1000000.0"),
    ("temperature", float("nan"), r"temperature=nan must be a number"),
    ("temperature", "hot", r"temperature='hot' must be a number"),
    ("top_k", 1.5, r"top_k=1.5 must be an integer from 0 to 1073741824"),
    ("top_p", 1.01, r"top_p=1.01 must be a number from 0.0 to 1.0"),
    ("min_p", -0.1, r"min_p=-0.1 must be"),
    ("repeat_penalty", 0.0, r"repeat_penalty=0.0 must be a number from 0.01 to 100.0"),
    ("repeat_last", 5000, r"repeat_last=5000 must be an integer from 0 to 1024"),
    ("seed", -1, r"seed=-1 must be an integer from 0 to 18446744073709551615"),
    ("seed", True, r"seed=True must be an integer"),
])  # fmt: skip
def test_options_out_of_range_are_named(name, value, message):
    with pytest.raises(ModelError, match=message):
        SamplingOptions(**{name: value})
