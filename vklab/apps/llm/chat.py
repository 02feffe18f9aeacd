"""Chat with a language model: messages, of which the cache keeps what it can between turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, Protocol

from vklab.apps.llm import pictures
from vklab.apps.llm.answer import Answer
from vklab.apps.llm.chat_template import ChatTemplate
from vklab.apps.llm.sampling import SamplingOptions

COLOURS = {"system": "#999999", "user": "#0072B2", "assistant": "#009E73"}


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
        answer = self._model.answer(tokens, asked, self.max_tokens, self.options, self.stop,
                                    self._add, True)  # fmt: skip
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
        return shown + pictures.cache_svg(len(self._model.cached), self._model.context)
