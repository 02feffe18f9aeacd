"""Trace of a plan: it is made once with symbols for the open sizes. Visited by lab 11."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab.errors import VklabError
from vklab.plan.options import Facts
from vklab.plan.templates import arrays, writer
from vklab.plan.templates.symbols import SizeTrace, Symbol, UntraceableError
from vklab.types import TensorInfo

# A size of 0 or 1 is not traced: broadcasting and empty tensors make its plan special.
LEAST_TRACED = 2
Infos = Mapping[str, TensorInfo]
Axes = tuple[tuple[tuple[str, int], ...], ...]
_UNTRACEABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, VklabError,
                UntraceableError, MemoryError)  # fmt: skip
log = logging.getLogger(__name__)


def trace(
    make: Callable[[Infos, Facts], Any], rest: Sequence[TensorInfo], infos: Infos,
    largest: Infos, facts: Facts,
) -> tuple[Axes, Callable[..., Any]] | None:  # fmt: skip
    """Return the axes of each symbol, and a function from their sizes to a plan; None if it fails.

    Args:
        make: makes a full plan.
        rest: the values that the rest of the model reads; open dimensions of one name are equal.
        infos: as in `plan.extend`.
        largest: the same infos at the upper bounds.
        facts: as in `plan.extend`.
    """
    axes = _symbol_axes(rest, infos, largest)
    record = SizeTrace()
    symbols: list[Symbol] = []
    shapes = {name: list[Any](info.shape) for name, info in infos.items()}
    for number, places in enumerate(axes):
        name, axis = places[0]
        size, most = infos[name].dims[axis], largest[name].dims[axis]
        traced = size if size >= LEAST_TRACED else most - 1
        symbols.append(Symbol(record, f"n{number}", traced, most))
        for name, axis in places:
            shapes[name][axis] = symbols[-1]
    symbolic = replace(facts, evaluate=functools.partial(arrays.evaluate, facts.evaluate))
    given = {name: replace(info, shape=tuple(shapes[name])) for name, info in infos.items()}
    try:
        build = writer.write(record, symbols, make(given, symbolic)) if symbols else None
    except _UNTRACEABLE as error:
        log.info("no template: %r", error)
        return None
    return (axes, build) if build else None


def _symbol_axes(rest: Sequence[TensorInfo], infos: Infos, largest: Infos) -> Axes:
    """Return the axes that share each symbol: those of one name whose size is below its bound."""
    shared: dict[Any, list[tuple[str, int]]] = {}
    for info in rest:
        for axis, name in enumerate(info.shape):
            size, most = infos[info.name].dims[axis], largest[info.name].dims[axis]
            if isinstance(name, str) and size < most > LEAST_TRACED:
                shared.setdefault(name, []).append((info.name, axis))
    return tuple(map(tuple, shared.values()))
