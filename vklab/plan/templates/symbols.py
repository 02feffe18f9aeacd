"""Symbols: sizes that compute and compare as integers do, and record what was done with them.

A plan that is made with symbols in its shapes is a program: the trace. Each operation adds a line,
each comparison a guard, so that the trace tells for which other sizes the plan is made the same
way. A symbol is no `int` of Python's: where a library needs a true number, it must ask for one
(`__index__` and its like), and the trace then fixes the number. Visited by lab 11.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from vklab.base.protocols import Size
from vklab.plan.templates.arrays import TracedArray

# A trace of more lines is given up: comparing all of them would take longer than planning.
MOST_LINES = 20_000
# Arrays up to this size are compared by their bytes.
SMALL_BYTES = 256


class UntraceableError(Exception):
    """Raised where a plan depends on sizes in more or other ways than a trace can record."""


class SizeTrace:
    """Assignments and guards in the order in which a plan made them, as lines of Python.

    Attributes:
        lines: the lines; symbols and traced arrays are their variables.
        constants: the other objects in the lines, by name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self._guards: set[str] = set()
        self._shared: dict[Hashable, Any] = {}

    def symbol(self, text: str, value: Any, most: Any) -> Symbol:
        """Return the symbol of an expression; equal expressions have one symbol.

        Args:
            text: the expression, in earlier symbols.
            value: its present value.
            most: its value at the upper bounds.
        """
        if text not in self._made:
            self._made[text] = Symbol(self, f"t{len(self._made)}", value, most)
            self._add(f"{self._made[text].name} = {text}")
        made: Symbol = self._made[text]
        return made

    def array(self, text: str, value: Any, most: Any, parts: Any = None) -> TracedArray:
        """Return the array of an expression.

        Args:
            text: the expression.
            value: its present value.
            most: its value at the upper bounds.
            parts: its elements, if they are known as symbols.
        """
        if text not in self._made:
            self._made[text] = TracedArray(self, f"t{len(self._made)}", value, most, parts)
            self._add(f"{self._made[text].name} = {text}")
        made: TracedArray = self._made[text]
        return made

    def number(self, text: str, value: int, most: int) -> Any:
        """Return an integer that an array decides; a plain one if the bounds do not change it.

        Args:
            text: the expression.
            value: its present value.
            most: its value at the upper bounds.
        """
        if value != most:
            return self.symbol(f"int({text})", value, most)
        self.guard(f"{text} == {value}")
        return value

    def guard(self, text: str, holds: bool = True) -> bool:
        """Record whether a condition holds, and return that."""
        text = text if holds else f"not ({text})"
        if text not in self._guards:
            self._guards.add(text)
            self._add(f"if not ({text}): return None")
        return holds

    def _add(self, line: str) -> None:
        self.lines.append(line)
        if len(self.lines) > MOST_LINES:
            raise UntraceableError(f"the plan compares sizes more than {MOST_LINES} times")

    # --------------------------------------------------------------------------------------- calls

    def call(self, function: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """Call a function of arrays, and record the call.

        An array in the result is traced, an integer is a symbol, and anything else a guard.

        Args:
            function: the function; `evaluate` and methods of arrays are functions, too.
            *given: its arguments: arrays, symbols, and anything else.
            **more: its arguments by name.
        """
        named = (f"{name}={self.text(each)}" for name, each in more.items())
        text = f"{self.text(function)}({', '.join([*map(self.text, given), *named])})"
        value, most = (
            function(
                *(_plain(each, kind) for each in given),
                **{name: _plain(each, kind) for name, each in more.items()},
            )
            for kind in ("value", "most")
        )
        if isinstance(value, np.ndarray):
            return self.array(text, value, most)
        if type(value) is int or isinstance(value, np.integer):
            return self.number(text, int(value), int(most))
        self.guard(f"same({text}, {self.text(value)})")
        return value

    def fixed(self, array: TracedArray) -> np.ndarray:
        """Return the value of an array, which a guard compares from now on."""
        self.guard(f"same({array.name}, {self.text(array.value)})")
        return array.value

    def shared(self, meaning: Hashable, make: Callable[[], Any]) -> Any:
        """Return one object for equal meanings."""
        if meaning not in self._shared:
            self._shared[meaning] = make()
        return self._shared[meaning]

    def text(self, value: Any) -> str:
        """Return an expression for a value in the lines."""
        if type(value) in (Symbol, TracedArray):
            return str(value.name)
        if type(value) in (tuple, list):
            parts = "".join(f"{self.text(each)}, " for each in value)
            return f"({parts})" if type(value) is tuple else f"[{parts}]"
        if type(value) in (int, bool, str, type(None)):
            return repr(value)
        one = value
        if isinstance(value, np.ndarray) and value.nbytes <= SMALL_BYTES and value.dtype != object:
            one = self.shared((str(value.dtype), value.shape, value.tobytes()), lambda: value)
        name = f"k{id(one)}"
        self.constants[name] = one
        return name


def _plain(value: Any, kind: str) -> Any:
    """Return a value without symbols: the present one ("value") or that at the bounds ("most")."""
    if type(value) in (Symbol, TracedArray):
        return getattr(value, kind)
    if type(value) in (tuple, list):
        return type(value)(_plain(each, kind) for each in value)
    return int(value) if isinstance(value, np.integer) else value


def _text(value: Any) -> str:
    return value.name if type(value) is Symbol else f"({_plain(value, '')!r})"


def _is_number(value: Any) -> bool:
    return type(value) in (Symbol, int, float, bool) or isinstance(value, np.integer)


def _computed(compute: Callable[..., Any], *given: Any) -> tuple[Any, Any]:
    """Return the present result, and that at the bounds: infinite where there is none."""
    value = compute(*(_plain(each, "value") for each in given))
    try:
        return value, compute(*(_plain(each, "most") for each in given))
    except ArithmeticError:
        return value, math.inf


def _infix(sign: str, compute: Callable[[Any, Any], Any], neutral: Any = None) -> Any:
    """Return the methods of an operator with the symbol to the left and to the right."""

    def left(self: Symbol, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        if type(other) is int and other == neutral and type(self.value) is int:
            return self
        return self.trace.symbol(
            f"{self.name} {sign} {_text(other)}", *_computed(compute, self, other)
        )

    def right(self: Symbol, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        if sign in "+*" and type(other) is int and other == neutral and type(self.value) is int:
            return self
        return self.trace.symbol(
            f"{_text(other)} {sign} {self.name}", *_computed(compute, other, self)
        )

    return left, right


def _comparison(sign: str, compute: Callable[[Any, Any], bool]) -> Any:
    def compare(self: Symbol, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        holds = compute(self.value, _plain(other, "value"))
        return (
            holds
            if self is other
            else (self.trace.guard(f"{self.name} {sign} {_text(other)}", holds))
        )

    return compare


def _function(text: str, compute: Callable[[Any], Any]) -> Any:
    return lambda self, *_: self.trace.symbol(text.format(self.name), *_computed(compute, self))


def _fixed(convert: Callable[..., Any]) -> Any:
    """Return a method whose result is no symbol: the trace fixes the symbol's value."""

    def fix(self: Symbol, *given: Any) -> Any:
        self.trace.guard(f"{self.name} == {self.value!r}")
        return convert(self.value, *given)

    return fix


class Symbol(Size):
    """A number in a trace; not hashable, as a set of sizes cannot record its comparisons.

    Attributes:
        trace: the trace.
        name: the variable in the trace.
        value: the number for which the plan is made.
        most: the number at the upper bounds.

    Args:
        trace: as the attribute.
        name: as the attribute.
        value: as the attribute.
        most: as the attribute.
    """

    __slots__ = ("most", "name", "trace", "value")

    def __init__(self, trace: SizeTrace, name: str, value: Any, most: Any) -> None:
        self.trace, self.name, self.value, self.most = trace, name, value, most

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return the type of the number, so that `isinstance(size, int)` holds."""
        return type(self.value)

    __hash__ = None  # type: ignore[assignment]
    __add__, __radd__ = _infix("+", operator.add, 0)
    __sub__, __rsub__ = _infix("-", operator.sub, 0)
    __mul__, __rmul__ = _infix("*", operator.mul, 1)
    __floordiv__, __rfloordiv__ = _infix("//", operator.floordiv, 1)
    __truediv__, __rtruediv__ = _infix("/", operator.truediv)
    __mod__, __rmod__ = _infix("%", operator.mod)
    __pow__, __rpow__ = _infix("**", operator.pow)
    __and__, __rand__ = _infix("&", operator.and_)
    __or__, __ror__ = _infix("|", operator.or_)
    __lshift__, __rlshift__ = _infix("<<", operator.lshift)
    __rshift__, __rrshift__ = _infix(">>", operator.rshift)
    __eq__ = _comparison("==", operator.eq)
    __ne__ = _comparison("!=", operator.ne)
    __lt__ = _comparison("<", operator.lt)
    __le__ = _comparison("<=", operator.le)
    __gt__ = _comparison(">", operator.gt)
    __ge__ = _comparison(">=", operator.ge)
    __neg__ = _function("-{}", operator.neg)
    __pos__ = _function("+{}", operator.pos)
    __abs__ = _function("abs({})", abs)
    __ceil__ = _function("ceil({})", math.ceil)
    __floor__ = _function("floor({})", math.floor)
    bit_length = _function("{}.bit_length()", lambda value: value.bit_length())
    __index__ = _fixed(operator.index)
    __int__ = _fixed(int)
    __trunc__ = _fixed(math.trunc)
    __round__ = _fixed(round)
    __float__ = _fixed(float)
    __str__ = _fixed(str)
    __repr__ = _fixed(repr)
    __format__ = _fixed(format)

    def array(self, values: Sequence[Any], dtype: Any) -> TracedArray:
        """Return symbols and numbers as an array."""
        value, most = (
            np.array(_plain(list(values), kind)).astype(dtype) for kind in ("value", "most")
        )
        text = f"array({self.trace.text(list(values))}).astype({str(np.dtype(dtype))!r})"
        return self.trace.array(text, value, most, list(values) if value.ndim == 1 else None)

    def reserved(self) -> int:
        """Return the number at the upper bounds, which a guard compares from now on."""
        if type(self.most) is not int or self.value > self.most:
            raise UntraceableError(f"{self.value} may grow beyond {self.most}")
        self.trace.guard(f"{self.name} <= {self.most}")
        return self.most

    def __bool__(self) -> bool:
        return self.trace.guard(self.name, bool(self.value))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self
