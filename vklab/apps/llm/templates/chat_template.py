"""Turn the messages of a chat into tokens, by the template in a model's file.

Names of control tokens count in the template's own text, never in the values that it is given, be
they messages, tools, documents or other variables. Source: Hugging Face, "Chat
templates".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vklab.apps.llm.templates.template_process import Limits, Rendered, TemplateProcess
from vklab.apps.llm.tokens.tokenizer import Tokenizer
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError

Message = Mapping[str, Any]

KEY = "tokenizer.chat_template"
END = "<|im_end|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROLES = ("system", "user", "assistant", "tool")


class ChatTemplate:
    """Template of a chat: messages to tokens.

    `is_default` tells that the file has none, and that ChatML is used.

    Args:
        file: the file; its metadata may hold a template.
        tokenizer: the file's tokenizer.
        limits: limits of a rendering, which is work of a stranger's program.
        text: a template that replaces that of the file.

    Raises ModelError for a template that is no text.
    """

    def __init__(
        self, file: GgufFile, tokenizer: Tokenizer, limits: Limits | None = None,
        text: str | None = None,
    ) -> None:  # fmt: skip
        self._tokenizer = tokenizer
        self.is_default = text is None and KEY not in file.metadata
        self.text = text if text is not None else file.text(KEY, CHATML)
        self._process = TemplateProcess(limits)
        known = tokenizer.vocabulary
        self._values = {
            f"{name}_token": "" if number is None else known.tokens[number]
            for name, number in (("bos", known.bos), ("eos", known.eos), ("unk", known.unknown))
        }

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the strings that end an answer: ChatML's end, where it is no control token."""
        return (END,) if self.is_default and END not in self._tokenizer.control_names else ()

    def start(self) -> None:
        """Start the process that renders without waiting for it."""
        self._process.start()

    def close(self) -> None:
        """End the process that renders."""
        self._process.close()

    def render(
        self, messages: Iterable[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Return the text of a chat, as people read it.

        Args:
            messages: each a mapping with `role`, `content`, and what else the template reads.
            add_generation_prompt: end with what begins an answer.
            variables: further variables of the template, as `enable_thinking=False`.

        Raises ModelError for messages of another form, and for a template that fails or reaches a
        limit.
        """
        return self._rendered(list(messages), add_generation_prompt, variables).text

    def encode(
        self, messages: Iterable[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Return the tokens of a chat; the token that begins a text stands once, where it is used.

        Args:
            messages: each a mapping with `role`, `content`, and what else the template reads.
            add_generation_prompt: end with what begins an answer.
            variables: further variables of the template, as `tools` and `documents`.

        Raises ModelError as `render` does.
        """
        text, own = self._rendered(list(messages), add_generation_prompt, variables)
        tokens = self._tokenizer.encode(text, False, parse_special=True, own=own)
        known = self._tokenizer.vocabulary
        if known.add_bos and known.bos is not None and tokens[:1] != [known.bos]:
            return [known.bos, *tokens]
        return tokens

    def _rendered(
        self, messages: Sequence[Message], add_generation_prompt: bool, variables: Mapping[str, Any]
    ) -> Rendered:
        """Return the text of a chat, and what of it is the template's own.

        Templates write `'<|' + role + '|>'`, so a role, which is one of four, is such text, too.
        """
        for number, message in enumerate(messages):
            _check(number, message)
        own = [
            *(("messages", number, "role") for number in range(len(messages))),
            *((name,) for name in self._values if name not in variables),
        ]
        return self._process.render(
            self.text,
            {
                "messages": [dict(message) for message in messages],
                "add_generation_prompt": add_generation_prompt,
                "tools": None,
                "documents": None,
                **self._values,
                **variables,
            },
            own,
        )

    def __repr__(self) -> str:
        source = "ChatML, since the file has none" if self.is_default else "of the file"
        return f"ChatTemplate: {len(self.text)} characters, {source}"


def _check(number: int, message: Message) -> None:
    """Raise ModelError for a message that is no role and text."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        raise ModelError(f"message {number} is {message!r:.60}; it must have role and content")
    if message["role"] not in ROLES:
        raise ModelError(
            f"message {number} has role {message['role']!r:.40}; choose one of {', '.join(ROLES)}"
        )
    if not isinstance(message["content"], str):
        raise ModelError(f"message {number} has content {message['content']!r:.40}, not text")
