"""Pictures of tokens and of the cache, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vklab.apps.llm.tokenizer import Tokenizer
from vklab.base.draw import svg

# Pale colours of the Okabe-Ito palette: black text stands on them.
BOXES = ("#cfe3f3", "#fbe3bd", "#c9ece0", "#f3dbe8", "#d9eefa", "#fad6c2")
WIDTH = 640


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
        boxes = [_box(text, token, number)
                 for number, (text, token) in enumerate(zip(self.texts, self, strict=True))]
        return f'<div style="line-height:2.6em">{"".join(boxes)}</div>'


def _box(text: str, token: int, number: int) -> str:
    shown = escape(text).replace(" ", "&middot;").replace("\n", "&#9166;").replace("\t", "&#8677;")
    return (f'<span style="display:inline-block;line-height:1.2em;margin:1px;padding:1px 4px;'
            f'border-radius:3px;color:#000;background:{BOXES[number % len(BOXES)]};'
            f'text-align:center"><code style="color:#000;background:none">{shown}</code><br>'
            f'<small>{token}</small></span>')  # fmt: skip


def cache_svg(used: int, bound: int) -> str:
    """Return a bar of the cache: the positions in use, and those that are free."""
    share = min(1.0, used / bound) if bound else 0.0
    words = f"cache: {used:,} of {bound:,} positions"
    return svg.svg(words, WIDTH, 44, [
        svg.text(4, 14, words),
        f'<rect x="4" y="20" width="{WIDTH - 8}" height="18" fill="#eee" stroke="#999"/>',
        f'<rect x="4" y="20" width="{(WIDTH - 8) * share:.1f}" height="18" '
        f'fill="{svg.PALETTE[2]}"/>',
    ])  # fmt: skip
