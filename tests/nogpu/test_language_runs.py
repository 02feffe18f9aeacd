"""Turns of vklab bench llm: neither idle clocks nor what the host records counts."""

from __future__ import annotations

import pytest

from vklab.apps.compare.speed import language, language_runs

RECORDS_S, COLD_S, WARM_S = 1.5, 0.06, 0.0125
TOKEN_S = 0.001
RISES_S = 0.3  # of work, until the clocks are up


class Clocked:
    """A decoder on a device whose clocks rise with work, and fall while the host records."""

    vocabulary = 32

    def __init__(self):
        self.now = self.worked = 0.0
        self.length = 0
        self.recorded = set()

    @property
    def lengths(self):
        return (self.length,)

    def rewind(self, length=0):
        self.length = length

    def prompt(self, tokens):
        self.work(len(tokens), COLD_S / WARM_S, WARM_S if len(tokens) > 1 else TOKEN_S)
        self.length += len(tokens)

    def generate(self, options, limit):
        for number in range(limit):
            self.work("loop", COLD_S / WARM_S, TOKEN_S)
            yield number

    def work(self, recording, slower, seconds):
        """Let the time of a run pass, and before its first run that of its recording."""
        if recording not in self.recorded:
            self.recorded.add(recording)
            self.now, self.worked = self.now + RECORDS_S, 0.0
        taken = seconds * (slower if self.worked < RISES_S else 1)
        self.now, self.worked = self.now + taken, self.worked + taken


@pytest.fixture
def decoder(monkeypatch):
    made = Clocked()
    monkeypatch.setattr(language_runs.time, "perf_counter", lambda: made.now)
    return made


def test_a_first_turn_measures_settled_clocks_and_no_recording(decoder):
    runs = language_runs.Runs(decoder, 512, 128, (0, 700), settles=True)
    runs.turn()
    assert set(runs.rates) == {(what, depth) for what in ("prompt", "decode") for depth in (0, 700)}
    for (what, _), samples in runs.rates.items():
        wanted = 512 / WARM_S if what == "prompt" else 1 / TOKEN_S
        assert samples == [pytest.approx(wanted)] * language_runs.REPEATS
    spent = decoder.now
    runs.turn()
    assert len(runs.rates["prompt", 0]) == 2 * language_runs.REPEATS
    assert decoder.now - spent < spent, "the second turn records nothing"


def test_a_cpu_is_timed_at_once_but_without_its_recording(decoder, monkeypatch):
    decoder.worked = 1.0
    monkeypatch.setattr(language_runs.Runs, "_generated", lambda *_: None)
    runs = language_runs.Runs(decoder, 9, 3, (0,), settles=False)
    runs.turn()
    assert decoder.recorded == {9} and len(runs.rates["prompt", 0]) == language_runs.REPEATS
    assert decoder.now < RECORDS_S + 5 * COLD_S
    assert language.Lengths(9, 3).context == 9


def test_products_have_no_share_of_a_prompt_without_a_rate():
    assert language._share(500.0, 512, 512 / 0.002) == pytest.approx(0.25)
    assert language._share(500.0, 512, None) is None
