"""Measure how well a language model predicts a text, alone and against another model.

Counts as llama.cpp does, so that figures compare: the text is cut into chunks of the context's
length, and the model is judged on the second half of each.
Source: llama.cpp, tools/perplexity/perplexity.cpp (MIT); Jelinek et al., "Perplexity", 1977.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vklab.apps.llm.judged import Judged, Reading
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.base import draw
from vklab.errors import ModelError

CONTEXT = 512
WHOLE = Reading()
HEADERS = ("model", "perplexity", "+-", "change", "mean KL", "same top-1")
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Comparison:
    """Distance of a model from a reference on the same tokens.

    `divergence` is the mean Kullback-Leibler divergence of the model from the reference, in nats;
    `agreement` the share of tokens for which both have the same first choice; `change` the
    perplexity over the reference's, less one.
    """

    reference: Perplexity
    divergence: float
    agreement: float
    change: float


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a model on a text, its standard error, and what was counted."""

    name: str
    value: float
    error: float
    tokens: int
    chunks: int
    context: int
    seconds: float
    against: Comparison | None = None

    def __str__(self) -> str:
        return (
            f"{self.name}: perplexity {self.value:.4f} +- {self.error:.4f}, {self.tokens:,} "
            f"tokens in {self.chunks} chunks of {self.context}"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the model's row of a table, and the reference's below it."""
        other = self.against
        compared = ("", "", "")
        if other is not None:
            compared = (
                f"{100 * other.change:+.3f} %",
                f"{other.divergence:.6f}",
                f"{100 * other.agreement:.2f} %",
            )
        rows = [(self.name, f"{self.value:.4f}", f"{self.error:.4f}", *compared)]
        return rows + ([] if other is None else other.reference.rows())

    def _repr_html_(self) -> str:
        return draw.table_html(str(self), HEADERS, self.rows())


@dataclass
class _Sums:
    """Sums over the judged tokens of one model."""

    loss: float = 0.0
    squares: float = 0.0
    count: int = 0
    seconds: float = 0.0

    def add(self, logs: np.ndarray, targets: np.ndarray, seconds: float) -> None:
        losses = -np.take_along_axis(logs, targets[:, None], 1)
        self.loss += float(losses.sum())
        self.squares += float((losses**2).sum())
        self.count += len(losses)
        self.seconds += seconds

    def perplexity(
        self, name: str, shape: tuple[int, int], against: Comparison | None
    ) -> Perplexity:
        mean = self.loss / self.count
        spread = max(0.0, self.squares / self.count - mean**2) / max(1, self.count - 1)
        value = math.exp(min(mean, 700.0))
        count, context = shape
        return Perplexity(
            name,
            value,
            value * math.sqrt(spread),
            self.count,
            count,
            context,
            self.seconds,
            against,
        )


def chunks(tokens: Sequence[int], context: int, begin: int | None = None) -> np.ndarray:
    """Return whole chunks of a text, int64 [chunks, context]; the rest of the text is dropped.

    Args:
        tokens: the tokens of the text.
        context: the tokens of a chunk, at least 4.
        begin: a token that takes the place of each chunk's first, for models that want one.

    Raises ModelError for a text of less than two chunks.
    """
    if context < 4:
        raise ModelError(f"a context of {context} tokens; the least is 4")
    if len(tokens) < 2 * context:
        raise ModelError(
            f"the text has {len(tokens)} tokens; a context of {context} needs at "
            f"least {2 * context}: give more text, or a smaller context"
        )
    rows = np.array(tokens[: len(tokens) // context * context], np.int64).reshape(-1, context)
    if begin is not None:
        rows[:, 0] = begin
    return rows


def perplexity(
    file: GgufFile,
    text: str,
    context: int = CONTEXT,
    against: GgufFile | None = None,
    most_chunks: int | None = None,
    progress: Progress | None = None,
    how: Reading = WHOLE,
) -> Perplexity:
    """Return the perplexity of a model on a text, compared with a reference if one is given.

    Args:
        file: the model.
        text: the text, of at least two chunks.
        context: the tokens of a chunk.
        against: the reference: a model with the same vocabulary, mostly the same in longer floats.
        most_chunks: the most chunks to count; default all.
        progress: called as (done, of, name) after each chunk.
        how: how chunks are read, and on which devices; default whole, on the fastest one.

    Raises ModelError for a text that is too short, a context beyond the model's, and for two
    vocabularies.
    """
    tokenizer = Tokenizer(file)
    known = tokenizer.vocabulary
    if against is not None and Tokenizer(against).vocabulary.tokens != known.tokens:
        raise ModelError(
            f"{file.name} and {against.name} have different vocabularies, so their "
            "predictions cannot be compared"
        )
    begin = known.bos if known.add_bos else None
    rows = chunks(tokenizer.encode(text), context, begin)[:most_chunks]
    if not len(rows):
        raise ModelError(f"at most {most_chunks} chunks are wanted; the least is 1")
    with contextlib.ExitStack() as stack:
        judged = [stack.enter_context(how.judged(file, context))]
        if against is not None:
            judged.append(stack.enter_context(how.reference().judged(against, context)))
        sums, divergence, same = _count(judged, rows, progress)
    shape = (len(rows), context)
    if against is None:
        return sums[0].perplexity(file.name, shape, None)
    other = sums[1].perplexity(against.name, shape, None)
    compared = Comparison(
        other,
        divergence / sums[0].count,
        same / sums[0].count,
        math.expm1((sums[0].loss - sums[1].loss) / sums[0].count),
    )
    return sums[0].perplexity(file.name, shape, compared)


def _count(
    judged: Sequence[Judged], rows: np.ndarray, progress: Progress | None
) -> tuple[list[_Sums], float, int]:
    """Return the sums of each model, the sum of divergences, and the number of equal choices."""
    sums, divergence, same = [_Sums() for _ in judged], 0.0, 0
    for done, row in enumerate(rows, 1):
        targets, found = row[len(row) // 2 + 1 :], []
        for model, total in zip(judged, sums, strict=True):
            started = time.perf_counter()
            logits = model.logits(row)
            seconds = time.perf_counter() - started
            found.append(_log_softmax(logits))
            total.add(found[-1], targets, seconds)
        if len(found) == 2:
            ours, theirs = found
            divergence += float((np.exp(theirs) * (theirs - ours)).sum())
            same += int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum())
        if progress is not None:
            progress(done, len(rows), "")
    return sums, divergence, same


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return logarithms of probabilities, float64. Logits that are not finite are a ModelError."""
    wide = logits.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ModelError(
            "the model's logits are not finite: its file is damaged, or its values "
            "leave the range of the device's floats"
        )
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
