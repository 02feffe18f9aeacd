"""Chat with a language model: messages, of which the cache keeps what it can between turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Protocol

from vklab.apps.llm.answer import Answer
from vklab.apps.llm.sampling import SamplingOptions
from vklab.apps.llm.templates.chat_template import ChatTemplate
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.base.draw import svg

# Pale colours of the Okabe-Ito palette: black text stands on them.
BOXES = ("#cfe3f3", "#fbe3bd", "#c9ece0", "#f3dbe8", "#d9eefa", "#fad6c2")
WIDTH = 640
COLOURS = {"system": "#999999", "user": "#0072B2", "assistant": "#009E73"}


class TokenBoxes(list[int]):
    """Tokens of a text, which a notebook shows as coloured boxes with their numbers.

    Args:
        tokenizer: the tokenizer.
        tokens: the tokens.
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[int]) -> None:
        super().__init__(tokens)
        self._tokenizer = tokenizer

    @property
    def texts(self) -> list[str]:
        """Return the text of each token; bytes that are no character stand as \\xNN."""
        pieces = [self._tokenizer.piece(token, special=True) for token in self]
        return [piece.decode("utf-8", "backslashreplace") for piece in pieces]

    def __repr__(self) -> str:
        boxes = " ".join(f"{text!r}:{token}" for text, token in zip(self.texts, self, strict=True))
        return f"{len(self)} tokens: {boxes}"

    def _repr_html_(self) -> str:
        boxes = [
            _box(text, token, number)
            for number, (text, token) in enumerate(zip(self.texts, self, strict=True))
        ]
        return f'<div style="line-height:2.6em">{"".join(boxes)}</div>'


def _box(text: str, token: int, number: int) -> str:
    shown = escape(text).replace(" ", "&middot;").replace("\n", "&#9166;").replace("\t", "&#8677;")
    return (
        f'<span style="display:inline-block;line-height:1.2em;margin:1px;padding:1px 4px;'
        f"border-radius:3px;color:#000;background:{BOXES[number % len(BOXES)]};"
        f'text-align:center"><code style="color:#000;background:none">{shown}</code><br>'
        f"<small>{token}</small></span>"
    )


def cache_svg(used: int, bound: int) -> str:
    """Return a bar of the cache: the positions in use, and those that are free."""
    share = min(1.0, used / bound) if bound else 0.0
    words = f"cache: {used:,} of {bound:,} positions"
    return svg.svg(
        words,
        WIDTH,
        44,
        [
            svg.text(4, 14, words),
            f'<rect x="4" y="20" width="{WIDTH - 8}" height="18" fill="#eee" stroke="#999"/>',
            f'<rect x="4" y="20" width="{(WIDTH - 8) * share:.1f}" height="18" '
            f'fill="{svg.PALETTE[2]}"/>',
        ],
    )


class Answering(Protocol):
    """Methods of a `LanguageModel` that a chat needs."""

    @property
    def template(self) -> ChatTemplate:
        """Return the chat template."""

    @property
    def context(self) -> int:
        """Return the positions that the cache holds."""

    @property
    def cached(self) -> tuple[int, ...]:
        """Return the tokens in the cache."""

    def answer(
        self, tokens: list[int], asked: float, max_tokens: int | None,
        options: SamplingOptions | None, stop: str | Iterable[str],
        on_end: Callable[[Answer], None], trim: bool,
    ) -> Answer:  # fmt: skip
        """Begin an answer.

        Args:
            tokens: the prompt.
            asked: `time.perf_counter` at the question.
            max_tokens: the most tokens.
            options: how tokens are chosen.
            stop: strings that end the answer.
            on_end: called with the answer when it has ended.
            trim: leave out the space before the first word.
        """

    def close_answer(self) -> None:
        """End the answer that is being written."""


class Chat:
    """Messages of a chat; `ask` adds a question and its answer.

    `options`, `stop` and `max_tokens` hold for the next answers, and may be changed.

    Args:
        model: the model that answers.
        system: the first message; "" for none.
        options: how tokens are chosen; None for the likeliest.
        stop: strings that end an answer.
        max_tokens: the most tokens of an answer; None for what the context has room for.
        variables: further variables of the template.
    """

    def __init__(
        self, model: Answering, system: str, options: SamplingOptions | None,
        stop: str | Iterable[str], max_tokens: int | None, variables: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.system, self.options = system, options
        self.stop = stop if isinstance(stop, str) else tuple(stop)
        self.max_tokens = max_tokens
        self.messages: list[dict[str, str]] = []
        self._model, self._variables = model, dict(variables)
        self.clear()

    def clear(self) -> None:
        """Forget all messages but that of the system."""
        self._model.close_answer()
        self.messages[:] = [{"role": "system", "content": self.system}] if self.system else []

    def ask(self, text: str) -> Answer:
        """Ask a question; its answer is written while it is read, and added when it has ended.

        Raises ModelError, and forgets the question, if the context has no room for it.
        """
        asked = time.perf_counter()
        self._model.close_answer()
        messages = [*self.messages, {"role": "user", "content": text}]
        tokens = self._model.template.encode(messages, **self._variables)
        answer = self._model.answer(
            tokens, asked, self.max_tokens, self.options, self.stop, self._add, True
        )
        self.messages[:] = messages
        return answer

    def _add(self, answer: Answer) -> None:
        self.messages.append({"role": "assistant", "content": answer.text})

    def __repr__(self) -> str:
        return "\n".join(f"{message['role']}: {message['content']}" for message in self.messages)

    def _repr_html_(self) -> str:
        shown = "".join(
            f'<div style="border-left:4px solid {COLOURS[message["role"]]};margin:4px 0;'
            f'padding:2px 8px;white-space:pre-wrap"><b>{message["role"]}</b>\n'
            f"{escape(message['content'])}</div>"
            for message in self.messages
        )
        return shown + cache_svg(len(self._model.cached), self._model.context)
