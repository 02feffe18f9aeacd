"""`vklab perplexity`: the figures are those of forward passes in float64, counted by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from support.language import gguf_fuzz, llama_models
from support.runs.two_drivers import both
from vklab import settings
from vklab.apps import cli
from vklab.apps.llm import perplexity as measuring
from vklab.apps.llm.judged import Reading
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf_writer import write_gguf
from vklab.apps.llm.weights.requantize import requantized
from vklab.apps.quantization import blocks
from vklab.errors import ModelError

CONTEXT = 14
TEXT = "hello world, hello worlds: 17 + 4 = 21; hold the low road well, old hero! " * 2


def soft(kind, layers=1):
    """Return a model that is not sure of anything, so that short floats change its mind."""
    file = gguf_fuzz.whole(kind, layers)
    file.tensors["output_norm.weight"].data.view(np.float32)[:] *= 0.1
    return file


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def by_hand(file, begin=None):
    """Return logarithms of probabilities and targets of all judged tokens."""
    tokens = Tokenizer(file).encode(TEXT)
    logs, targets = [], []
    for start in range(0, len(tokens) // CONTEXT * CONTEXT, CONTEXT):
        chunk = tokens[start : start + CONTEXT]
        fed = chunk if begin is None else [begin, *chunk[1:]]
        found = log_softmax(llama_models.logits(file, fed))
        for step in range(CONTEXT // 2, CONTEXT - 1):
            logs.append(found[step])
            targets.append(chunk[step + 1])
    return np.array(logs), np.array(targets)


def value_of(logs, targets):
    return math.exp(-logs[np.arange(len(targets)), targets].mean())


def test_perplexity_and_divergence_are_those_of_float64(device):
    file = soft("bpe")
    short = requantized(file, "Q4_0", blocks.dequantize, blocks.quantize)
    found = measuring.perplexity(short, TEXT, CONTEXT, file, how=Reading(device=device))
    (ours, targets), (theirs, _) = by_hand(short), by_hand(file)
    other = found.against
    assert found.tokens == len(targets) == found.chunks * (CONTEXT // 2 - 1)
    assert found.value == pytest.approx(value_of(ours, targets), rel=1e-4)
    assert other.reference.value == pytest.approx(value_of(theirs, targets), rel=1e-4)
    divergence = (np.exp(theirs) * (theirs - ours)).sum(axis=1).mean()
    assert other.divergence == pytest.approx(divergence, rel=1e-3) and divergence > 1e-3
    assert other.agreement == (ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()
    assert other.change == pytest.approx(found.value / other.reference.value - 1, rel=1e-6)
    losses = -ours[np.arange(len(targets)), targets]
    error = found.value * losses.std(ddof=1) / math.sqrt(len(losses))
    assert found.error == pytest.approx(error, rel=1e-3)
    assert "same top-1" in found._repr_html_()


def test_steps_of_one_row_judge_the_same_tokens(device):
    # The cache holds halves, and on GPUs a single row is rounded to eight bits.
    file = soft("bpe")
    logs, targets = by_hand(file)
    how = Reading(by_steps=True, device=device)
    found = measuring.perplexity(file, TEXT, CONTEXT, file, how=how)
    assert found.tokens == len(targets)
    assert found.value == pytest.approx(value_of(logs, targets), rel=0.01)
    assert found.against.reference.value == pytest.approx(value_of(logs, targets), rel=1e-4)
    assert 0 < found.against.divergence < 1e-3


def test_chunks_are_read_by_way_of_a_cache(device):
    file = soft("bpe")
    logs, targets = by_hand(file)
    for cache, bound in (("F32", 1e-4), ("F16", 1e-3)):
        how = Reading(cache=cache, device=device)
        with settings.settings(PRECISION="exact"):
            found = measuring.perplexity(file, TEXT, CONTEXT, file, how=how)
        assert found.value == pytest.approx(value_of(logs, targets), rel=bound)
        rounded = measuring.perplexity(file, TEXT, CONTEXT, how=how)
        assert rounded.value == pytest.approx(value_of(logs, targets), rel=0.01)
        assert found.against.reference.value == pytest.approx(value_of(logs, targets), rel=1e-4)
    with pytest.raises(ModelError, match="unknown format 'Q4_0' of a cache"):
        measuring.perplexity(file, TEXT, CONTEXT, how=Reading(cache="Q4_0", device=device))


@pytest.mark.full
@pytest.mark.parametrize("steps", [False, True])
def test_layers_on_two_devices(steps, tmp_path):
    path, text = tmp_path / "model.gguf", tmp_path / "text.txt"
    file = soft("bpe", layers=2)
    write_gguf(path, file.metadata, file.tensors.values())
    text.write_text(TEXT, "utf-8")
    logs, targets = by_hand(file)
    printed = both(
        """
import sys
from support.runs.split_models import BOTH
from vklab import settings
from vklab.apps import cli
line = ["perplexity", *sys.argv[1:3], "--against", sys.argv[1], "--context", sys.argv[3], "--json",
        "--devices", ",".join(map(str, BOTH)), "--layers", "1", "--cache", "F32", *sys.argv[4:]]
sys.stderr = sys.stdout  # the sizes on each device
assert cli.main(line) == 0
""",
        path,
        text,
        CONTEXT,
        *["--steps"] * steps,
    )
    assert "model.gguf, layer 0 on " in printed
    facts = json.loads(printed[printed.index("{") :])
    for found in (facts, facts["against"]):
        assert found["perplexity"] == pytest.approx(value_of(logs, targets), rel=1e-4)


def test_a_model_that_wants_a_first_token_gets_it_in_each_chunk(device):
    file = soft("spm")
    logs, targets = by_hand(file, begin=1)
    found = measuring.perplexity(file, TEXT, CONTEXT, how=Reading(device=device))
    assert found.value == pytest.approx(value_of(logs, targets), rel=1e-4)


def test_the_command_prints_a_table_and_json(tmp_path, device_index, capsys):
    file = soft("bpe")
    model, short, text = tmp_path / "m.gguf", tmp_path / "m.Q8_0.gguf", tmp_path / "text.txt"
    write_gguf(model, file.metadata, file.tensors.values())
    assert cli.main(["quantize", str(model), "--type", "Q8_0", "-o", str(short)]) == 0
    text.write_text(TEXT, "utf-8")
    line = [
        "perplexity",
        str(short),
        str(text),
        "--against",
        str(model),
        "--context",
        str(CONTEXT),
        "--chunks",
        "3",
        "--device",
        str(device_index),
    ]
    capsys.readouterr()
    assert cli.main(line) == 0
    shown = capsys.readouterr().out
    assert "same top-1" in shown and "18 tokens in 3 chunks of 14" in shown
    assert cli.main([*line, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["chunks"] == 3 and facts["against"]["model"] == "m.gguf"
    assert abs(facts["change"]) < 0.1 and 0 < facts["mean_kl_divergence"] < 0.01
    assert cli.main([*line, "--json", "--steps"]) == 0
    by_steps = json.loads(capsys.readouterr().out)
    assert by_steps["perplexity"] == pytest.approx(facts["perplexity"], rel=0.01)
    assert by_steps["perplexity"] != facts["perplexity"]


def test_what_cannot_be_judged_is_refused(tmp_path, capsys):
    file, other = gguf_fuzz.whole("bpe"), gguf_fuzz.whole("spm")
    for arguments, message in (
        (("too short", CONTEXT), "needs at least 28: give more text"),
        ((TEXT, 3), "the least is 4"),
        ((TEXT * 3, 65), "a context of 65 is not among 1 to 64"),
        ((TEXT, CONTEXT, other), "have different vocabularies"),
        ((TEXT, CONTEXT, None, 0), "the least is 1"),
    ):
        with pytest.raises(ModelError, match=message):
            measuring.perplexity(file, *arguments)
    model, text = tmp_path / "m.gguf", tmp_path / "text.txt"
    write_gguf(model, file.metadata, file.tensors.values())
    text.write_bytes(b"abc \xff")
    for path, message in (
        (text, "is no UTF-8"),
        (tmp_path, "is a folder"),
        (tmp_path / "gone", "there is no text"),
    ):
        assert cli.main(["perplexity", str(model), str(path)]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_logits_that_are_not_finite_are_an_error(device):
    file = gguf_fuzz.whole("bpe")
    norm = file.tensors["output_norm.weight"]
    norm.data.view(np.float32)[:] = np.inf
    with pytest.raises(ModelError, match="not finite"):
        measuring.perplexity(file, TEXT, CONTEXT, how=Reading(device=device))
