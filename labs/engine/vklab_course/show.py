"""show: the real source of a function, class or kernel, coloured, with its file and line.

The text is read from the imported files, so that a lab never shows an old copy. Visited by lab 00.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from jupyterlab_pygments import JupyterStyle
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from vklab.errors import ShaderError
from vklab.shader import source
from vklab_course import seam, words
from vklab_course.places import PROJECT

__all__ = ["Listing", "show"]

LEXERS = {"python": "python", "glsl": "glsl", "slang": "hlsl"}


class _Style(JupyterStyle):
    line_number_color = "var(--jp-ui-font-color2)"


@dataclass(frozen=True)
class Listing:
    """A piece of source with its file and line."""

    place: str
    first_line: int
    text: str
    language: str

    def __str__(self) -> str:
        lines = self.text.splitlines()
        width = len(str(self.first_line + len(lines)))
        pairs = enumerate(lines, self.first_line)
        numbered = (f"{number:>{width}}  {line}".rstrip() for number, line in pairs)
        return "\n".join([f"{self.place}:{self.first_line}", *numbered])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # The style's colours are JupyterLab's variables, which follow its light or dark theme.
        formatter = HtmlFormatter(
            style=_Style,
            noclasses=True,
            linenos="inline",
            linenostart=self.first_line,
            nobackground=True,
            cssstyles="overflow-x:auto",
            linespans="line",
            prestyles="font-family:var(--jp-code-font-family,monospace),monospace;"
            "font-size:.9em;line-height:1.35;margin:0",
        )
        code = highlight(self.text, get_lexer_by_name(LEXERS[self.language]), formatter)
        # What does not fit on a line goes on behind the line's number, not under it.
        width = len(str(self.first_line + self.text.count("\n"))) + 4
        hanging = f'<span style="display:block;padding-left:{width}ch;text-indent:-{width}ch"'
        code = re.sub(r'<span id="line-\d+"', hanging, code)
        return (
            '<figure style="margin:.4em 0"><figcaption><code>'
            f"{escape(self.place)}:{self.first_line}</code></figcaption>{code}</figure>"
        )


def show(thing: Any, at: str = "", lines: int | None = None) -> Listing:
    """Return the source of a function, a class, a module, or a kernel, or some of its lines.

    Args:
        thing: the object itself; a kernel's name, "softmax" or "labs/vector_add.comp"; or a
            dotted path, "vklab.plan.memory.assign_offsets".
        at: begin at the first line that holds this text.
        lines: number of lines; None for all.

    Raises ShaderError or LookupError for an unknown name, and TypeError for an object without
    source in Python.
    """
    if isinstance(thing, str) and thing.partition(".")[0] in seam.PACKAGES and "." in thing:
        thing = seam.resolve(thing)[2]
    if isinstance(thing, str):
        path = _kernel(thing)
        text = path.read_text("utf-8").rstrip()
        return _cut(Listing(_place(path), 1, text, source.language(path)), at, lines)
    target = inspect.unwrap(thing) if callable(thing) else thing
    try:
        listed, first = inspect.getsourcelines(target)
        file = inspect.getsourcefile(target)
    except (TypeError, OSError) as error:
        kind = type(thing).__name__
        raise TypeError(
            f"show takes a function, a class, a module or a kernel's name; this "
            f"{kind} has no source: {error}"
        ) from None
    whole = Listing(_place(Path(file or "?")), max(first, 1), "".join(listed).rstrip(), "python")
    return _cut(whole, at, lines)


def _kernel(name: str) -> Path:
    """Return the file of a kernel; the error for an unknown name lists names like it."""
    try:
        return source.find(name)
    except ShaderError as error:
        known = [path for root in source.roots() for path in root.rglob("*") if path.suffix]
        stems = {path.stem for path in known} | {path.name for path in known}
        raise ShaderError(f"{error}.{words.near(name, stems)}") from None


def _cut(whole: Listing, at: str, lines: int | None) -> Listing:
    """Return some lines of a listing; LookupError if no line holds the text."""
    if not at and lines is None:
        return whole
    text = whole.text.splitlines()
    start = next((number for number, line in enumerate(text) if at in line), None)
    if start is None:
        raise LookupError(f"{whole.place} has no line with {at!r} there")
    stop = None if lines is None else start + lines
    kept = textwrap.dedent("\n".join(text[start:stop]))
    return replace(whole, first_line=whole.first_line + start, text=kept)


def _place(path: Path) -> str:
    resolved = path.resolve()
    if resolved.is_relative_to(PROJECT):
        return resolved.relative_to(PROJECT).as_posix()
    # A cell's file has a temporary name, which differs in every kernel.
    return "this notebook" if "ipykernel" in path.as_posix() or "<" in str(path) else path.name
