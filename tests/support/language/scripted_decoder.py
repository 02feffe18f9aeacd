"""Decoder without a device: it answers with given tokens, and keeps the books of a real one."""

from __future__ import annotations

from support.language.vocabularies import byte_bpe, file_of
from vklab.apps.llm.decode.memory import Sizes
from vklab.apps.llm.language_model import LanguageModel
from vklab.apps.llm.templates.chat_template import ChatTemplate
from vklab.apps.llm.tokens.tokenizer import Tokenizer


class ScriptedDecoder:
    """Stand-in for `vklab.llm.decoder.Decoder`; `prompts` are the tokens of each prompt.

    Args:
        file: the file of the vocabulary.
        answers: the tokens of each answer; the stop token is given like any other.
        context: the positions of the cache.
    """

    def __init__(self, file, answers, context=64):
        self.file, self.context = file, context
        self.vocabulary = len(file.metadata["tokenizer.ggml.tokens"])
        self.sizes = Sizes(context, 1000, 2000, 30, 9000)
        self.answers, self.prompts, self.calls = list(answers), [], []
        self.tokens, self.is_closed = ((),), False
        self.fails_after = None

    @property
    def lengths(self):
        return (len(self.tokens[0]),)

    def prepare(self, is_wanted):
        """Prepare nothing."""

    def rewind(self, length=0):
        assert length <= self.lengths[0]
        self.tokens = (self.tokens[0][:length],)

    def prompt(self, tokens):
        assert tokens and self.lengths[0] + len(tokens) <= self.context
        self.prompts.append(list(tokens))
        if self.fails_after == len(self.prompts):
            raise KeyboardInterrupt
        self.tokens = ((*self.tokens[0], *tokens),)

    def generate(self, options=None, stop_tokens=(), limit=None):
        self.calls.append((options, limit))
        before = ()
        for number, token in enumerate(self.answers.pop(0)):
            if number < limit:
                self.tokens = ((*self.tokens[0], *before),)
            if token in stop_tokens or number == limit:
                return
            if token is KeyboardInterrupt:
                raise KeyboardInterrupt
            before = (token,)
            yield token

    def close(self):
        self.is_closed = True


def scripted(answers, context=64, metadata=None, text=None) -> LanguageModel:
    """Return a model that gives some answers: texts, in which names of control tokens count.

    Args:
        answers: a text for each answer, or its tokens.
        context: the positions of the cache.
        metadata: of the vocabulary; default that of `byte_bpe`.
        text: a chat template.
    """
    file = file_of({"general.architecture": "llama", **(metadata or byte_bpe())})
    tokenizer = Tokenizer(file)
    tokens = [
        tokenizer.encode(answer, False, True) if isinstance(answer, str) else answer
        for answer in answers
    ]
    decoder = ScriptedDecoder(file, tokens, context)
    return LanguageModel(decoder, tokenizer, ChatTemplate(file, tokenizer, text=text))
