"""Pages of the course as HTML, from the templates in `pages/`: every text in them is escaped."""

from __future__ import annotations

import functools
import unicodedata
from pathlib import Path
from typing import Any

import jinja2

__all__ = ["page", "shown"]

PAGES = Path(__file__).resolve().parent / "pages"
# Controls that would hide or turn around the text behind them.
HIDDEN = {"Cc", "Cf", "Co", "Cs"}
SHOWN = 4000


def shown(text: str) -> str:
    """Return text with its invisible characters written out, and cut to a readable length."""
    visible = "".join(
        c if c in "\n\t" or unicodedata.category(c) not in HIDDEN else f"\\u{ord(c):04x}"
        for c in text
    )
    return visible if len(visible) <= SHOWN else visible[:SHOWN] + "\n..."


@functools.cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["shown"] = shown
    return made


def page(name: str, **facts: Any) -> str:
    """Return a page from a template; every text in it is escaped."""
    return _templates().get_template(name).render(**facts)
