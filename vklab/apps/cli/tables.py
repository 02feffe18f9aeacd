"""Layout of tables and lines for a width: nothing is wider, and no number is cut or folded.

A table that cannot be made narrow enough becomes one block of lines for each row.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from vklab.base.draw import svg

GAP, LEAST, WORD = 2, 8, 28
_UNIT = re.compile(r"(\d) (?=(?:%|[num]?s|[KMG]?i?B|GB/s)(?!\w))")
_FIGURE = re.compile(r"\d[\d.,x]*$|\w+\[[\w,.]*\]$")


def lines(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: frozenset[str],
    whole: frozenset[str],
) -> Iterator[list[str]]:  # fmt: skip
    """Yield the lines of a table as padded cells; the header's line comes first.

    Args:
        headers: one text for each column.
        rows: one text for each header.
        width: columns of the terminal.
        numbers: headers of columns of numbers: right-aligned, never cut or folded.
        whole: headers of other columns that are not folded, but shortened in their middle.
    """
    widths = fit(headers, rows, width, numbers, whole)
    if not widths:
        yield [""]
        for row in rows:
            yield from ([line] for line in block(headers, row, width))
        return
    for row in (headers, *rows):
        cells = [
            [cell] if header in numbers
            else [svg.shorten(cell, wide)] if header in whole or row is headers
            else wrapped(cell, wide)
            for header, cell, wide in zip(headers, row, widths, strict=True)
        ]  # fmt: skip
        for line in zip_longest(*cells, fillvalue=""):
            yield [
                cell.rjust(wide) if header in numbers else cell.ljust(wide)
                for header, cell, wide in zip(headers, line, widths, strict=True)
            ]


def fit(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: frozenset[str],
    whole: frozenset[str],
) -> list[int]:  # fmt: skip
    """Return the width of each column, empty if the table does not fit.

    Args:
        headers: one text for each column.
        rows: one text for each header.
        width: columns of the terminal.
        numbers: headers of columns of numbers, which keep their width.
        whole: headers of columns that may be shortened.
    """
    room = width - GAP * (len(headers) - 1)
    natural, least = [], []
    for column, header in enumerate(headers):
        cells = [row[column] for row in rows]
        natural.append(max([len(header), *map(len, cells)]))
        words = [len(w) for cell in cells for w in cell.split() if _FIGURE.search(w)]
        words += [min(len(w), WORD) for cell in cells for w in cell.split()]
        short = min(natural[-1], LEAST) if header in whole else max([len(header), *words])
        least.append(natural[-1] if header in numbers else min(short, natural[-1]))
    if sum(least) > room:
        return []
    widths = least
    while sum(widths) < room and widths != natural:
        # Shares are equal, so a narrow column is whole before a wide one takes more.
        lacking = [n for n, wide in enumerate(widths) if wide < natural[n]]
        widths[min(lacking, key=lambda n: widths[n])] += 1
    return widths


def block(headers: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    """Yield one row as lines: the first cells, then pairs of header and value.

    Args:
        headers: one text for each column.
        row: one text for each header.
        width: columns of the terminal.
    """
    texts = [cell.strip() for cell in row]
    named = zip(headers, texts, strict=True)
    pairs = [f"{header} {cell}".strip() for header, cell in named if cell]
    line = ""
    for pair in pairs:
        if line and len(line) + GAP + len(pair) > width:
            yield from hang(line, width)
            line = "   " + pair
        else:
            line = f"{line}  {pair}" if line else pair
    yield from hang(line, width)


def hang(text: str, width: int, indent: int = 5) -> list[str]:
    """Return a text in lines of a width, the later ones indented; numbers and shapes stay whole.

    Args:
        text: one line of text.
        width: columns of the terminal.
        indent: columns of space before the later lines.
    """
    lead = text[: len(text) - len(text.lstrip())]
    return wrapped(text.strip(), width, lead, " " * indent)


def wrapped(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """Return a text in lines of a width, broken at spaces, but not between a number and its unit.

    Args:
        text: one line of text.
        width: columns of a line; only words that are wider are broken inside.
        first: text in front of the first line.
        later: text in front of the later lines.
    """
    made = textwrap.wrap(_UNIT.sub("\\1\xa0", text), width, break_on_hyphens=False,
                         initial_indent=first, subsequent_indent=later)  # fmt: skip
    return [line.replace("\xa0", " ") for line in made] or [""]
