"""Text of an answer while it grows: characters and stop strings that tokens cut are held back."""

from __future__ import annotations

from collections.abc import Iterable

from vklab.apps.llm.tokenizer import Tokenizer
from vklab.errors import ModelError


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
