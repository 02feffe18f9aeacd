"""Turn text into tokens and tokens into text, with the vocabulary of a GGUF file.

Two kinds: SentencePiece merges characters by the scores of the results; byte BPE splits words by
patterns, and merges bytes by a list of pairs.
Source: Kudo and Richardson 2018, SentencePiece; Sennrich et al. 2016, subword units; llama.cpp,
src/llama-vocab.cpp (MIT).
"""

from __future__ import annotations

import codecs
import heapq
import re
from collections.abc import Callable, Iterable, Sequence

from vklab.apps.llm.tokens import pretokenize
from vklab.apps.llm.tokens.vocabulary import BYTE, CONTROL, UNKNOWN, USER, Vocabulary
from vklab.apps.llm.weights.gguf import GgufFile
from vklab.errors import ModelError

Rank = Callable[[str, str], float | None]
SPACE = "\u2581"
_HEX = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def merged(symbols: Sequence[str], rank: Rank) -> list[str]:
    """Return the symbols after all merges; n symbols take about n log n steps.

    Args:
        symbols: the symbols, mostly characters.
        rank: the rank of a pair: the lowest is merged first, of equal ones the left; None for a
            pair that is never merged.
    """
    texts = list(symbols)
    after, before = list(range(1, len(texts) + 1)), list(range(-1, len(texts) - 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int) -> None:
        right = after[left] if left >= 0 else len(texts)
        if right < len(texts):
            value = rank(texts[left], texts[right])
            if value is not None:
                heapq.heappush(heap, (value, left, texts[left], texts[right]))

    for index in range(len(texts)):
        offer(index)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = after[left]
        if right == len(texts) or (texts[left], texts[right]) != (first, second):
            continue  # one of them has been merged since
        texts[left], texts[right] = first + second, ""
        after[left] = after[right]
        if after[left] < len(texts):
            before[after[left]] = left
        offer(before[left])
        offer(left)
    return [text for text in texts if text]


def _byte_letters() -> list[str]:
    """Return the letter that stands for each byte in byte BPE: itself, where it is printable."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


LETTERS = _byte_letters()
_BYTES = {letter: bytes([byte]) for byte, letter in enumerate(LETTERS)}


class Tokenizer:
    """Text to tokens and back, as the model of a GGUF file was trained.

    Args:
        file: the file; its metadata hold the vocabulary.

    Raises ModelError for a vocabulary that is missing, damaged or of an unknown kind.
    """

    def __init__(self, file: GgufFile) -> None:
        self.vocabulary = Vocabulary.of(file)
        known = self.vocabulary
        special = [
            (text, number, known.types[number])
            for text, number in known.numbers.items()
            if text and known.types[number] in (CONTROL, USER, UNKNOWN)
        ]
        self._special = sorted(special, key=lambda entry: -len(entry[0].encode("utf-8")))
        self._control = {number for text, number, kind in special if kind != USER}
        self._patterns = () if known.is_spm else pretokenize.patterns_of(known.family)
        self._words: dict[str, list[int]] = {}

    @property
    def ends(self) -> frozenset[int]:
        """Return the tokens that end a turn."""
        return self.vocabulary.ends

    @property
    def control_names(self) -> list[str]:
        """Return the names that `encode` reads as control tokens, if it is told to."""
        return [name for name, _, kind in self._special if kind != USER]

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    def __repr__(self) -> str:
        kind = "SentencePiece" if self.vocabulary.is_spm else f"byte BPE ({self.vocabulary.family})"
        return f"Tokenizer: {kind}, {len(self):,} tokens"

    # -------------------------------------------------------------------------- text to tokens

    def encode(
        self, text: str, add_special: bool = True, parse_special: bool = False,
        own: str | None = None,
    ) -> list[int]:  # fmt: skip
        """Return the tokens of a text.

        Args:
            text: the text.
            add_special: add the tokens that begin and end a text, where the model wants them.
            parse_special: read the names of control tokens as these tokens; never do that with
                text of a stranger.
            own: where `parse_special` may read names: a text of the same length, which differs in
                the characters that belong to no such name; None for the text itself.

        Raises ModelError for text that is no valid Unicode.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ModelError(f"the text is no valid Unicode at character {error.start}") from error
        known = self.vocabulary
        begins = add_special and known.add_bos and known.bos is not None
        tokens = [known.bos] if begins else []
        is_after_special = True
        for part in self._parts(text, (text if own is None else own) if parse_special else ""):
            if isinstance(part, int):
                tokens.append(part)
            elif known.is_spm:
                tokens += self._pieces(" " + part if known.add_space and is_after_special else part)
            else:
                for word in pretokenize.split(part, self._patterns):
                    tokens += self._word(word)
            is_after_special = isinstance(part, int)
        if add_special and known.add_eos and known.eos is not None:
            tokens.append(known.eos)
        return [token for token in tokens if token is not None]

    def _parts(self, text: str, own: str) -> list[str | int]:
        """Return the text in parts, with special tokens as numbers; longer names come first.

        Names of control tokens are searched for in `own`; it is empty, or as long as the text.
        """
        parts: list[tuple[str, str] | int] = [(text, own)] if text else []
        for name, number, kind in self._special:
            if name in (text if kind == USER else own):
                parts = [
                    piece
                    for part in parts
                    for piece in (
                        [part]
                        if isinstance(part, int)
                        else _split(*part, name, number, kind == USER)
                    )
                ]
        return [part if isinstance(part, int) else part[0] for part in parts]

    def _plain(self, text: str) -> int | None:
        """Return the token of a piece of text; None if there is none, or a control token."""
        number = self.vocabulary.numbers.get(text)
        return None if number in self._control else number

    def _pieces(self, text: str) -> list[int]:
        """Return the tokens of a text in SentencePiece."""
        known = self.vocabulary
        scores = known.scores
        assert scores is not None, "a vocabulary of SentencePiece has scores"

        def rank(left: str, right: str) -> float | None:
            number = self._plain(left + right)
            return None if number is None else -float(scores[number])

        tokens: list[int] = []
        for symbol in merged(text.replace(" ", SPACE), rank):
            whole = self._plain(symbol)
            tokens += self._by_bytes(symbol) if whole is None else [whole]
        return tokens

    def _by_bytes(self, symbol: str) -> list[int]:
        """Return a token for each byte of a symbol; the unknown token if there are none."""
        known = self.vocabulary
        names = [f"<0x{byte:02X}>" for byte in symbol.encode("utf-8")]
        if all(name in known.numbers for name in names):
            return [known.numbers[name] for name in names]
        if known.unknown is None:
            raise ModelError(f"the vocabulary has no token for {symbol!r:.20}")
        return [known.unknown]

    def _word(self, word: str) -> list[int]:
        """Return the tokens of a word in byte BPE; words are remembered."""
        found = self._words.get(word)
        if found is None:
            found = self._merged_word(word)
            if len(self._words) < 10_000 and len(word) < 100:
                self._words[word] = found
        return found

    def _merged_word(self, word: str) -> list[int]:
        known = self.vocabulary
        letters = "".join([LETTERS[byte] for byte in word.encode("utf-8")])
        whole = self._plain(letters) if known.family in pretokenize.WHOLE_WORDS else None
        if whole is not None:
            return [whole]
        symbols = merged(letters, lambda left, right: known.ranks.get(f"{left} {right}"))
        tokens = [
            known.numbers.get(text, known.unknown)
            for symbol in symbols
            for text in (symbol if self._plain(symbol) is None else [symbol])
        ]
        if None in tokens:
            raise ModelError(f"the vocabulary has no tokens for {word!r:.40}")
        return [token for token in tokens if token is not None]

    # -------------------------------------------------------------------------- tokens to text

    def piece(self, token: int, special: bool = False) -> bytes:
        """Return the bytes of one token, which may end inside a character.

        Args:
            token: the token.
            special: return the names of control tokens, too, not nothing.
        """
        known = self.vocabulary
        if not 0 <= token < len(known.tokens):
            raise ModelError(f"token {token} is not among the {len(known.tokens)} of this model")
        text, kind = known.tokens[token], known.types[token]
        if kind in (CONTROL, UNKNOWN):
            return text.encode("utf-8") if special else b""
        if kind == USER:
            return text.encode("utf-8")
        if known.is_spm:
            code = _HEX.fullmatch(text) if kind == BYTE else None
            return bytes.fromhex(code[1]) if code else text.replace(SPACE, " ").encode("utf-8")
        return b"".join([_BYTES.get(letter) or letter.encode("utf-8") for letter in text])

    def decode(self, tokens: Iterable[int], special: bool = False) -> str:
        """Return the text of some tokens; bytes that are no UTF-8 become U+FFFD.

        Args:
            tokens: the tokens.
            special: return the names of control tokens, too.
        """
        text = b"".join([self.piece(token, special) for token in tokens]).decode("utf-8", "replace")
        known = self.vocabulary
        return text.removeprefix(" ") if known.is_spm and known.add_space else text

    def stream(self) -> Stream:
        """Return a decoder that takes one token at a time."""
        return Stream(self)


class Stream:
    """Decoder of one token at a time: the bytes of an unfinished character wait for the rest."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return the characters that a token completes."""
        return self._decoder.decode(self._tokenizer.piece(token))

    def end(self) -> str:
        """Return U+FFFD if a character is unfinished."""
        return self._decoder.decode(b"", final=True)


def _split(
    text: str, own: str, name: str, number: int, is_word: bool
) -> list[tuple[str, str] | int]:  # fmt: skip
    """Return a text and its `own` in parts, between which a name stands for a token.

    Args:
        text, own: the text, and where names of control tokens count.
        name, number: the name and its token.
        is_word: search the text for the name, not `own`.
    """
    parts: list[tuple[str, str] | int] = []
    start = 0
    for index, part in enumerate((text if is_word else own).split(name)):
        parts += [number] if index else []
        end = start + len(part)
        parts += [(text[start:end], own[start:end])] if part else []
        start = end + len(name)
    return parts
