"""Language model that is loaded on a device: text in, text out.

Decides which tokens of a prompt the cache has already; the decoder does the work on the device.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vklab.apps.llm import chat
from vklab.apps.llm.answer import Answer, TextStream
from vklab.apps.llm.chat import Chat, TokenBoxes
from vklab.apps.llm.decode.decoder import Decoder
from vklab.apps.llm.sampling import SamplingOptions
from vklab.apps.llm.templates.chat_template import ChatTemplate
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import read_gguf
from vklab.base import draw
from vklab.errors import ModelError


def load(
    path: str | os.PathLike[str], device: int | str | None = None, context: int | None = None,
    cache: str = "F16", template: str | None = None, **more: Any,
) -> LanguageModel:  # fmt: skip
    """Load a model in GGUF on a device.

    Args:
        path: the GGUF file.
        device: index or name of the device; default the fastest.
        context: positions that the cache holds; default the model's own, at most 4096.
        cache: format of the cache, "F16", "F32" or "Q8_0".
        template: a chat template that replaces that of the file.
        more: `devices`, `layers`, `progress`, `report` and `loaded` of `Decoder`.

    Raises FileNotFoundError, and ModelError for a file that is damaged or holds an unknown model.
    """
    file = read_gguf(path)
    tokenizer = Tokenizer(file)  # before the weights: a damaged vocabulary is found at once
    chat_template = ChatTemplate(file, tokenizer, text=template)
    return LanguageModel(
        Decoder(file, device, context, cache=cache, **more), tokenizer, chat_template
    )


class LanguageModel:
    """A model on a device, with its tokenizer and its chat template.

    One answer at a time: another one closes the one before. `close` frees the device's memory.

    Args:
        decoder: the model on the device.
        tokenizer: the tokenizer of its file.
        template: the chat template of its file.
    """

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.decoder, self.tokenizer, self.template = decoder, tokenizer, template
        self.name = decoder.file.text("general.name", decoder.file.name)
        self._answer: Answer | None = None
        if len(tokenizer) > decoder.vocabulary:
            decoder.close()
            raise ModelError(
                f"{decoder.file.name}: {len(tokenizer)} tokens in the vocabulary, "
                f"logits for {decoder.vocabulary}"
            )

    @property
    def context(self) -> int:
        """Return the positions that the cache holds."""
        return self.decoder.context

    @property
    def cached(self) -> tuple[int, ...]:
        """Return the tokens whose keys and values are in the cache."""
        return self.decoder.tokens[0]

    def tokens(self, text: str, parse_special: bool = False) -> TokenBoxes:
        """Return the tokens of a text, which a notebook shows as coloured boxes.

        Args:
            text: the text.
            parse_special: read names of control tokens as these tokens.
        """
        found = self.tokenizer.encode(text, parse_special=parse_special)
        return TokenBoxes(self.tokenizer, found)

    def generate(
        self, prompt: str | Sequence[int], max_tokens: int | None = None,
        options: SamplingOptions | None = None, stop: str | Iterable[str] = (),
    ) -> Answer:  # fmt: skip
        """Continue a text; the answer is written while it is read.

        Args:
            prompt: the text, in which names of control tokens are plain text; or tokens.
            max_tokens: the most tokens of the answer; default what the context has room for.
            options: how tokens are chosen; default the likeliest.
            stop: strings that end the answer and are no part of it.

        Raises ModelError for a prompt that is empty, no valid Unicode, or longer than the context.
        """
        asked = time.perf_counter()
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt)
            if self.tokenizer.vocabulary.add_eos and prompt[-1:] == [self.tokenizer.vocabulary.eos]:
                del prompt[-1:]  # the text goes on
        return self.answer(list(prompt), asked, max_tokens, options, stop)

    def chat(
        self, system: str = "", options: SamplingOptions | None = None,
        stop: str | Iterable[str] = (), max_tokens: int | None = None, **variables: Any,
    ) -> Chat:  # fmt: skip
        """Begin a chat.

        Args:
            system: a message that tells the model how to answer; "" for none.
            options: how tokens are chosen; default the likeliest.
            stop: strings that end an answer and are no part of it.
            max_tokens: the most tokens of an answer; default what the context has room for.
            variables: further variables of the template.
        """
        stops = ((stop,) if isinstance(stop, str) else tuple(stop)) + self.template.stops
        return Chat(self, system, options, stops, max_tokens, variables)

    def answer(
        self, tokens: list[int], asked: float, max_tokens: int | None,
        options: SamplingOptions | None, stop: str | Iterable[str],
        on_end: Callable[[Answer], None] = lambda answer: None, trim: bool = False,
    ) -> Answer:  # fmt: skip
        """Begin an answer to the tokens of a prompt.

        Args:
            tokens: the prompt.
            asked: `time.perf_counter` at the question.
            max_tokens: the most tokens; None for what the context has room for.
            options: how tokens are chosen; None for the likeliest.
            stop: strings that end the answer.
            on_end: called with the answer when it has ended.
            trim: leave out the space that SentencePiece puts before the first word.
        """
        self.close_answer()
        if not tokens:
            raise ModelError("the prompt is empty, and the model has no token that begins a text")
        room = self.context - len(tokens)
        if room < 1:
            raise ModelError(
                f"the prompt has {len(tokens)} tokens; a context of {self.context} has"
                " no room for it and an answer"
            )
        if max_tokens is not None and max_tokens < 1:
            raise ModelError(f"at most {max_tokens} tokens are asked for; ask for at least 1")
        stream = TextStream(self.tokenizer, stop)
        began = time.perf_counter()
        kept = self._prefill(tokens)
        is_short = max_tokens is not None and max_tokens <= room
        limit = max_tokens if is_short and max_tokens is not None else room
        made = self.decoder.generate(options, self.tokenizer.ends, limit)
        known = self.tokenizer.vocabulary
        self._answer = Answer(
            made,
            stream,
            (limit, "length" if is_short else "context"),
            (asked, began),
            (len(tokens), kept),
            on_end,
            trim and known.is_spm and known.add_space,
        )
        return self._answer

    def _prefill(self, tokens: list[int]) -> int:
        """Put a prompt into the cache, and return how many of its tokens were there already."""
        pairs = zip(self.cached, tokens[:-1], strict=False)  # the last one gives the logits
        kept = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])
        self.decoder.rewind(kept)
        self.decoder.prompt(tokens[kept:])
        return kept

    def close_answer(self) -> None:
        """End the answer that is being written, if there is one."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def close(self) -> None:
        """Free the device's memory and end the process of the template."""
        self.close_answer()
        self.template.close()
        self.decoder.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"LanguageModel {self.name}: {len(self.tokenizer):,} tokens, context "
            f"{self.context:,}, {self.decoder.sizes}"
        )

    def _repr_html_(self) -> str:
        file, sizes = self.decoder.file, self.decoder.sizes
        rows = [
            ("architecture", file.text("general.architecture")),
            ("tokenizer", repr(self.tokenizer)),
            ("template", repr(self.template)),
            *((f"{part.device} {part.layers}".strip(), str(part)) for part in sizes.parts),
        ]
        table = draw.table_html(self.name, ("", ""), rows)
        return table + chat.cache_svg(len(self.cached), self.context)
