"""Piece: a part of the runtime that answers to exercises can replace, and what stands there else.

`use` gives the runtime's own function behind the signature of an exercise; a trial or a showcase
puts the kept answers into the runtime. Each piece is written in its lab's module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Given", "Piece"]


@dataclass(frozen=True)
class Given:
    """One answer that stands in the runtime: the function or the text of a kernel.

    Attributes:
        value: the function, or the text of a kernel.
        params: the parameters of the variant for which it was written.
    """

    value: Any
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Piece:
    """A part of the runtime that some exercises build.

    Two pieces of one name at one seam exclude each other: they do the same work.

    Attributes:
        name: what is built, in the runtime's words: `topological_order`.
        seam: dotted path of what is replaced.
        own: for each exercise, a function of the variant's parameters that returns the runtime's
            own function behind the exercise's signature, or such a kernel as text.
        adapter: called with one `Given` for each exercise in the order of `own`; returns what
            stands at the seam. It verifies each result, and raises AssertionError with a sentence
            before a driver meets a wrong one. Of several pieces at one seam, each is called while
            those before it stand there.
        naive: what stands at the seam in a runtime that does without this work; None if nothing
            simpler exists.
        devices: how many devices a model needs for this piece to be called.
        load: further arguments of `vklab.load` with which the digits call this piece.
        outside: a sentence on what calls this piece, if no run of a model does; else "". Such a
            piece is kept and taken by `use`, and a showcase tries no model with it.
    """

    name: str
    seam: str
    own: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    adapter: Callable[..., Any]
    naive: Any = None
    devices: int = 1
    load: Mapping[str, Any] = field(default_factory=dict)
    outside: str = ""
