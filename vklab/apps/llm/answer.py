"""Answer of a language model: its text in pieces, why it ended, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.errors import ModelError

# Why an answer ended, by the word that statistics have for it.
REASONS = {
    "end": "the model ended its turn",
    "stop": "a stop string appeared",
    "length": "it has the most tokens that were asked for",
    "context": "the context is full",
    "cancelled": "it was cancelled",
}


class TextStream:
    """Tokens to text, one at a time, until a stop string appears.

    A character is returned when its last byte is there, and text that may begin a stop string when
    it does not. `stop` is the stop string that ended the text, "" before.

    Args:
        tokenizer: the model's tokenizer.
        stops: strings that end the text and are no part of it.

    Raises ModelError for a stop string that is empty or no text.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Iterable[str] = ()) -> None:
        self._stops = (stops,) if isinstance(stops, str) else tuple(stops)
        if not all(isinstance(stop, str) and stop for stop in self._stops):
            raise ModelError(f"stop strings are {self._stops!r:.80}; each must be text, not empty")
        self._characters = tokenizer.stream()
        self._held = ""
        self.stop = ""

    def add(self, token: int) -> str:
        """Return the text that is certain after one more token; nothing after a stop string."""
        return self._checked(self._characters.add(token))

    def end(self) -> str:
        """Return the text that was held back, with U+FFFD for an unfinished character."""
        text = self._checked(self._characters.end())
        text, self._held = text + self._held, ""
        return text

    def _checked(self, text: str) -> str:
        if self.stop:
            return ""
        text = self._held + text
        found = [(text.index(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:
            start, _, self.stop = min(found)
            self._held = ""
            return text[:start]
        kept = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _overlap(text: str, stop: str) -> int:
    """Return the characters at the end of a text with which a stop string may begin."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)


@dataclass(frozen=True)
class Statistics:
    """Tokens and times of one answer; `reason` is a key of REASONS.

    `kept_tokens` of the prompt were in the cache already. `first_token_s` counts from the question,
    `prompt_s` from the start of the prompt's work on the device, both to the first token;
    `decode_s` goes from the first token to the last.
    """

    prompt_tokens: int
    kept_tokens: int
    answer_tokens: int
    first_token_s: float
    prompt_s: float
    decode_s: float
    reason: str

    @property
    def prompt_per_s(self) -> float:
        """Return the tokens of the prompt a second, those in the cache apart."""
        return _rate(self.prompt_tokens - self.kept_tokens, self.prompt_s)

    @property
    def decode_per_s(self) -> float:
        """Return the tokens of the answer a second, after the first."""
        return _rate(self.answer_tokens - 1, self.decode_s)

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            **asdict(self),
            "prompt_per_s": self.prompt_per_s,
            "decode_per_s": self.decode_per_s,
        }

    def __str__(self) -> str:
        kept = f" (+ {self.kept_tokens} in the cache)" if self.kept_tokens else ""
        return (
            f"prompt {self.prompt_tokens - self.kept_tokens}{kept} tokens at "
            f"{self.prompt_per_s:.1f}/s, first token after {self.first_token_s:.2f} s, "
            f"{self.answer_tokens} tokens at {self.decode_per_s:.1f}/s"
        )


class Answer:
    """Iterator over the pieces of an answer's text, which is written while it is read.

    `tokens` are the tokens so far, `text` their text, and `statistics` are complete when the
    iterator has ended or is closed. Another answer of the same model closes it.

    Args:
        tokens: tokens of the answer, which are computed when they are read.
        stream: turns tokens into text.
        limit: the most tokens, and the reason if they are reached.
        times: `time.perf_counter` at the question and at the start of the prompt's work.
        counts: tokens of the prompt, and how many of them were in the cache.
        on_end: called with the answer once, when it has ended.
        trim: leave out a space at the beginning, which SentencePiece puts before words.
    """

    def __init__(
        self, tokens: Iterator[int], stream: TextStream, limit: tuple[int, str],
        times: tuple[float, float], counts: tuple[int, int], on_end: Callable[[Answer], None],
        trim: bool = False,
    ) -> None:  # fmt: skip
        self.tokens: list[int] = []
        self.text = ""
        self._source, self._stream, self._limit = tokens, stream, limit
        self._times, self._counts, self._on_end = times, counts, on_end
        self._trim = trim
        self._first_s = self._last_s = 0.0
        self._reason = "cancelled"
        self._is_over = False
        self._pieces = self._written()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def read(self) -> str:
        """Return the whole text, after all of it has been written."""
        for _ in self:
            pass
        return self.text

    def close(self) -> None:
        """End the answer here; what has been written stays."""
        self._pieces.close()
        self._finish()  # a generator that was never started runs nothing when it is closed

    @property
    def statistics(self) -> Statistics:
        """Return tokens and times so far; `reason` is "cancelled" until the answer has ended."""
        asked, began = self._times
        first = self._first_s or time.perf_counter()
        return Statistics(
            *self._counts,
            len(self.tokens),
            first - asked,
            first - began,
            max(0.0, self._last_s - self._first_s),
            self._reason,
        )

    def _written(self) -> Generator[str, None, None]:
        """Yield pieces of text while the model writes."""
        try:
            for token in self._source:
                self._last_s = time.perf_counter()
                self._first_s = self._first_s or self._last_s
                self.tokens.append(token)
                yield from self._piece(self._stream.add(token))
                if self._stream.stop:
                    break
            most, reason = self._limit
            full = len(self.tokens) >= most
            self._reason = "stop" if self._stream.stop else reason if full else "end"
            yield from self._piece(self._stream.end())
            if self._stream.stop:
                self._reason = "stop"
        finally:
            self._finish()

    def _piece(self, text: str) -> Iterator[str]:
        if self._trim and text:
            text, self._trim = text.removeprefix(" "), False
        if text:
            self.text += text
            yield text

    def _finish(self) -> None:
        """Stop the device's work and report the end, once."""
        if not self._is_over:
            self._is_over = True
            close = getattr(self._source, "close", None)
            if close is not None:
                close()
            self._on_end(self)

    def __repr__(self) -> str:
        return f"Answer: {self.text!r:.60}, {self.statistics}"


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0
