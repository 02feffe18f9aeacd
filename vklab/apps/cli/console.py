"""Output of the commands: facts on stdout, everything else on stderr, JSON with --json.

Tables fit the terminal: no number is cut or folded, and a table that cannot be made narrow enough
becomes one block of lines for each row."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column
from rich.text import Text
from tqdm import tqdm

from vklab.base.draw import svg

GAP, LEAST, WORD = 2, 8, 28
_UNIT = re.compile(r"(\d) (?=(?:%|[num]?s|[KMG]?i?B|GB/s)(?!\w))")
_FIGURE = re.compile(r"\d[\d.,x]*$|\w+\[[\w,.]*\]$")
JSON_HELP = "Print one JSON object on stdout."
# A progress bar that ends sooner than this would only flicker.
BAR_DELAY_S = 0.4
# Width of a bar beside a name and bytes.
BAR_COLUMNS = 20
# Control characters but tab and line feed, by their pictures in Unicode; 0x80 to 0x9F have none.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_PICTURES |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}
# Characters that turn the text behind them around, and those that begin a line.
_PICTURES |= dict.fromkeys(
    (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD
)
_LINES = {0x09: 0x2409, 0x0A: 0x240A, 0x85: 0xFFFD, 0x2028: 0x240A, 0x2029: 0x240A}
_out, _err = Console(highlight=False), Console(stderr=True, highlight=False)


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
            [cell]
            if header in numbers
            else [svg.shorten(cell, wide)]
            if header in whole or row is headers
            else wrapped(cell, wide)
            for header, cell, wide in zip(headers, row, widths, strict=True)
        ]
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
    made = textwrap.wrap(
        _UNIT.sub("\\1\xa0", text),
        width,
        break_on_hyphens=False,
        initial_indent=first,
        subsequent_indent=later,
    )
    return [line.replace("\xa0", " ") for line in made] or [""]


def width() -> int:
    """Return the number of columns of the terminal, or COLUMNS if set; 80 without one.

    rich takes every terminal without cursor movement (TERM=dumb) for one of 80 columns.
    """
    return shutil.get_terminal_size().columns


def visible(text: str) -> str:
    """Return text of a stranger as one line that steers no terminal."""
    return text.translate(_PICTURES | _LINES)


def say(text: str = "", style: str = "") -> None:
    """Print text on stdout without wrapping, so that lines can be copied."""
    _out.print(Text(text.translate(_PICTURES), style), soft_wrap=True)


def warn(text: str) -> None:
    """Print text on stderr."""
    _err.print(Text(text.translate(_PICTURES)), soft_wrap=True)


def write(text: str) -> None:
    """Write a piece of text on stdout at once, as it is.

    On a terminal, control characters become pictures: text of a stranger must not steer it.
    """
    if sys.stdout.isatty():
        text = text.translate(_PICTURES)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def as_text(data: Mapping[str, Any]) -> str:
    """Return one JSON object as text."""
    return json.dumps(_plain(data), indent=1, allow_nan=False) + "\n"


def emit(data: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(as_text(data))


def flush() -> None:
    """Write out what was printed; raise OSError, and print no more, if this is impossible."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python would try again when the process ends, and print a traceback.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity become text, sets sorted lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def table(
    title: str, headers: Sequence[str], rows: Iterable[Sequence[object]],
    right: str = "", whole: str = "",
) -> None:  # fmt: skip
    """Print a table on stdout.

    Args:
        title: line above the table; none if empty.
        headers: one text for each column.
        rows: one cell for each header; rich Text keeps its style.
        right: headers, separated by spaces, of columns of numbers: right-aligned, never wrapped.
        whole: headers of other columns that are never wrapped.
    """
    if title:
        say(title, "bold")
    words = {*right.split()}
    numbers = frozenset(header for header in headers if header and {*header.split()} <= words)
    cells = [list(row) for row in rows]
    styled = {
        cell.plain: str(cell.style) for row in cells for cell in row if isinstance(cell, Text)
    }
    texts = [[visible(" ".join(str(cell).split())) for cell in row] for row in cells]
    laid = lines(headers, texts, width(), numbers, frozenset(whole.split()))
    for number, padded in enumerate(laid):
        line = Text("  ").join(
            Text(text, "dim" if not number else styled.get(text.strip(), "")) for text in padded
        )
        line.rstrip()
        if line.plain:
            _out.print(line, soft_wrap=True)


def say_wrapped(text: str, style: str = "", indent: int = 5) -> None:
    """Print text on stdout in lines of the terminal's width.

    Args:
        text: one line of text.
        style: a style of rich.
        indent: columns of space before the later lines.
    """
    for line in hang(text, width(), indent):
        say(line, style)


def compiling() -> contextlib.AbstractContextManager[Callable[[int, int, str], None]]:
    """Show a bar on stderr while kernels compile; yield the `progress` argument of `load`."""
    return bar("compiling", " kernels")


@contextlib.contextmanager
def bar(what: str, unit: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on stderr; yield a function of (done, of, name) that moves it.

    `what` stands before the bar, `unit` after the counts.
    """
    with tqdm(
        unit=unit, desc=what, file=sys.stderr, leave=False, disable=None, delay=BAR_DELAY_S
    ) as shown:

        def progress(done: int, of: int, name: str) -> None:
            shown.total = of
            shown.set_postfix_str(name, refresh=False)
            shown.update(done - shown.n)
            if done >= of:
                shown.clear()  # the command's next output starts on an empty line

        yield progress


@contextlib.contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show on a terminal's stderr that work goes on."""
    with _err.status(Text(what)):
        yield


@contextlib.contextmanager
def loading(what: str) -> Iterator[dict[str, Callable[..., None]]]:
    """Show a bar of bytes on a terminal's stderr, and before it the kernels that compile.

    Yields the arguments `progress` and `loaded` of `llm.load`.
    """
    fits = Column(no_wrap=True, overflow="ellipsis")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=fits),
        BarColumn(BAR_COLUMNS),
        DownloadColumn(True, table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=_err, transient=True, disable=not _err.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield {
            "progress": lambda done, of, name: shown.update(
                task, description=f"{what}: kernel {done} of {of}, {name}"
            ),
            "loaded": lambda done, of: shown.update(
                task, description=what, completed=done, total=of
            ),
        }
