"""Turn the messages of a chat into tokens, by the template in a model's file.

Names of control tokens count in what the template writes, never in what a message holds. Visited by
lab 19. Source: Hugging Face, "Chat templates".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vklab.errors import ModelError
from vklab.llm.gguf import GgufFile
from vklab.llm.template_process import Limits, TemplateProcess
from vklab.llm.tokenizer import Tokenizer

__all__ = ["CHATML", "ChatTemplate", "Message"]

Message = Mapping[str, str]

KEY = "tokenizer.chat_template"
END = "<|im_end|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROLES = ("system", "user", "assistant", "tool")
# Unicode promises never to assign these, so that programs may use them inside.
NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


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
        self._names = [name for name in tokenizer.control_names if len(name) > 1]
        cuts = [(name, size) for name in self._names for size in range(1, len(name))]
        self._heads = {name[:size] for name, size in cuts}
        self._tails = {name[size:] for name, size in cuts}
        self._longest = max(map(len, self._names), default=0)
        self._values = {
            f"{name}_token": "" if number is None else known.tokens[number]
            for name, number in (("bos", known.bos), ("eos", known.eos), ("unk", known.unknown))
        }

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the strings that end an answer: ChatML's end, where it is no control token."""
        return (END,) if self.is_default and END not in self._names else ()

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
            messages: each a mapping with `role` and `content`.
            add_generation_prompt: end with what begins an answer.
            variables: further variables of the template, as `enable_thinking=False`.

        Raises ModelError for messages of another form, and for a template that fails or reaches a
        limit.
        """
        text, marker = self._marked(list(messages), add_generation_prompt, variables)
        return text.replace(marker, "")

    def encode(
        self, messages: Iterable[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Return the tokens of a chat; the token that begins a text stands once, where it is used.

        Args:
            messages: each a mapping with `role` and `content`.
            add_generation_prompt: end with what begins an answer.
            variables: further variables of the template.

        Raises ModelError as `render` does.
        """
        text, marker = self._marked(list(messages), add_generation_prompt, variables)
        tokens = self._tokenizer.encode(text, False, parse_special=True, marker=marker)
        known = self._tokenizer.vocabulary
        if known.add_bos and known.bos is not None and tokens[:1] != [known.bos]:
            return [known.bos, *tokens]
        return tokens

    def _marked(
        self, messages: Sequence[Message], add_generation_prompt: bool, variables: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Return the text of a chat with a marker in names that are a message's, and the marker."""
        for number, message in enumerate(messages):
            _check(number, message)
        marker = _marker([message["content"] for message in messages])
        marked = [{**message, "content": self._broken(message["content"], marker)}
                  for message in messages]  # fmt: skip
        text = self._process.render(self.text, {
            "messages": marked, "add_generation_prompt": add_generation_prompt, "tools": None,
            "documents": None, **self._values, **variables,
        })  # fmt: skip
        return text, marker

    def _broken(self, content: str, marker: str) -> str:
        """Return a content in which no control token's name stands, begins or ends."""
        for name in self._names:
            while name in content:  # again: a name may overlap itself
                content = content.replace(name, f"{name[:1]}{marker}{name[1:]}")
        # A name that the template's text would complete, before the content or after it.
        sizes = range(min(self._longest, len(content)), 0, -1)
        ahead = next((size for size in sizes if content[:size] in self._tails), 0)
        if ahead:
            content = f"{content[: ahead - 1]}{marker}{content[ahead - 1 :]}"
        behind = next((size for size in sizes if content[-size:] in self._heads), 0)
        if behind:
            cut = len(content) - behind + 1
            content = f"{content[:cut]}{marker}{content[cut:]}"
        return content

    def __repr__(self) -> str:
        source = "ChatML, since the file has none" if self.is_default else "of the file"
        return f"ChatTemplate: {len(self.text)} characters, {source}"


def _check(number: int, message: Message) -> None:
    """Raise ModelError for a message that is no role and text."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        raise ModelError(f"message {number} is {message!r:.60}; it must have role and content")
    if message["role"] not in ROLES:
        raise ModelError(f"message {number} has role {message['role']!r:.40}; choose one of "
                         f"{', '.join(ROLES)}")  # fmt: skip
    if not isinstance(message["content"], str):
        raise ModelError(f"message {number} has content {message['content']!r:.40}, not text")


def _marker(texts: list[str]) -> str:
    """Return a character that no text holds; ModelError if there is none."""
    for marker in NONCHARACTERS:
        if not any(marker in text for text in texts):
            return marker
    raise ModelError(f"the messages hold all {len(NONCHARACTERS)} characters of Unicode that are "
                     "reserved for programs")  # fmt: skip
