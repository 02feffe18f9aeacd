"""Seams: the places of the runtime that a student's function can take, named by dotted paths.

Resolves such a path, and makes the real function refuse while an answer is being checked, so that
`mine = vklab.plan.memory.assign_offsets` earns nothing.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

__all__ = ["REFUSAL", "is_real", "patched", "refusing", "resolve"]

REFUSAL = "the runtime's own function is asked to answer; write it yourself"


def resolve(path: str) -> tuple[Any, str, Any]:
    """Return what holds a dotted path (a module or class), the last name, and its value.

    Raises LookupError naming the first step that is not there.
    """
    steps = path.split(".")
    holder, taken = _deepest_module(steps)
    for number in range(taken, len(steps) - 1):
        holder = _attribute(holder, steps, number)
    return holder, steps[-1], _attribute(holder, steps, len(steps) - 1)


def _deepest_module(steps: Sequence[str]) -> tuple[Any, int]:
    """Return the module that a path starts with, and how many steps it takes."""
    for count in range(len(steps) - 1, 0, -1):
        name = ".".join(steps[:count])
        try:
            return importlib.import_module(name), count
        except ModuleNotFoundError as error:
            # Missing is one of the steps, or something that an existing module imports?
            if not (error.name and (name + ".").startswith(error.name + ".")):
                raise
    raise LookupError(f"there is no module {'.'.join(steps[:-1]) or steps[0]!r}")


def _attribute(holder: Any, steps: Sequence[str], number: int) -> Any:
    try:
        # A class's own entry: a method stays the plain function that can be put back.
        found = vars(holder) if isinstance(holder, type) else {}
        return found[steps[number]] if steps[number] in found else getattr(holder, steps[number])
    except AttributeError:
        where = ".".join(steps[:number])
        names = sorted(name for name in dir(holder) if not name.startswith("_"))
        near = difflib.get_close_matches(steps[number], names, 3) or names[:12]
        raise LookupError(f"{where} has no {steps[number]!r}; it has {', '.join(near)}") from None


def _function(value: Any) -> FunctionType | None:
    """Return the plain function behind a seam: through wrappers, and a class's constructor."""
    for _ in range(8):
        if isinstance(value, FunctionType):
            return value
        if isinstance(value, type):
            value = vars(value).get("__init__")
        else:
            value = getattr(value, "__wrapped__", None) or getattr(value, "func", None) or getattr(
                value, "__func__", None
            )
    return None


def is_real(answer: Any, paths: Sequence[str]) -> bool:
    """Tell whether an answer is the real function of a seam, as it is or wrapped."""
    mine = _function(answer)
    real = [_function(resolve(path)[2]) for path in paths]
    return mine is not None and any(r is mine or (r and r.__code__ is mine.__code__) for r in real)


def _refuse(*arguments: object, **named: object) -> None:
    # Runs in the place of a real function, with that function's globals: nothing but builtins.
    raise RuntimeError("the runtime's own function is asked to answer; write it yourself")


@contextlib.contextmanager
def refusing(paths: Sequence[str]) -> Iterator[Mapping[str, FunctionType]]:
    """Make the real functions of seams raise; yield working copies of them for the oracle.

    The code inside the function object is exchanged, not the name: whoever kept the function
    meets the refusal, too.
    """
    real = {path: function for path in paths if (function := _function(resolve(path)[2]))}
    copies = {path: _copy(function) for path, function in real.items()}
    code = {path: function.__code__ for path, function in real.items()}
    try:
        for function in real.values():
            if not function.__code__.co_freevars:
                function.__code__ = _refuse.__code__
        yield copies
    finally:
        for path, function in real.items():
            function.__code__ = code[path]


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__,
                        function.__defaults__, function.__closure__)  # fmt: skip
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def patched() -> list[str]:
    """Return what a notebook has put into vklab's modules: the names of its own functions there."""
    found = []
    for name, module in sorted(sys.modules.items()):
        if module is None or not (name == "vklab" or name.startswith("vklab.")):
            continue
        for key, value in list(vars(module).items()):
            if _is_foreign(value):
                found.append(f"{name}.{key}")
            elif isinstance(value, type) and value.__module__ == name:
                inside = list(vars(value).items())
                found += [f"{name}.{key}.{k}" for k, v in inside if _is_foreign(v)]
    return found


def _is_foreign(value: Any) -> bool:
    return isinstance(value, FunctionType | type) and value.__module__ == "__main__"
