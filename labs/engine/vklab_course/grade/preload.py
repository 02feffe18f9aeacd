"""Compiled schemas of notebooks: a server loads this once, and its forks validate at once."""

from nbformat.validator import get_validator

__all__ = []

for _minor in (4, 5):
    get_validator(4, _minor)
