"""Seams: functions of the runtime, named by dotted paths, that a student's function can replace.

Resolves a path, and makes the real function raise while an answer is checked, so that
`mine = vklab.plan.memory.assign_offsets` is no solution. Visited by lab 00.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

__all__ = ["PACKAGES", "REFUSAL", "given", "is_real", "patched", "refusing", "resolve"]

PACKAGES = ("vklab", "vklab_course", "vklab_labs")
DEFINED = (FunctionType, type)
REFUSAL = "the runtime's own function is asked to answer; write it yourself"
given: list[Any] = []  # what `use` has given of the runtime: functions, and kernels as text


def resolve(path: str, kinds: tuple[type, ...] = DEFINED) -> tuple[Any, str, Any]:
    """Return the module or class that a dotted path ends in, the last name, and its value.

    Args:
        path: a dotted path, `vklab.plan.memory.assign_offsets`.
        kinds: what the error names where the last step does not exist: functions, classes.

    Raises LookupError with the first step that does not exist, and names like it.
    """
    steps = path.split(".")
    holder, taken = _deepest_module(steps)
    for number in range(taken, len(steps) - 1):
        holder = _attribute(holder, steps, number, (type,))
    return holder, steps[-1], _attribute(holder, steps, len(steps) - 1, kinds)


def _deepest_module(steps: Sequence[str]) -> tuple[Any, int]:
    """Return the module that a path starts with, and the number of its steps."""
    for count in range(len(steps) - 1, 0, -1):
        name = ".".join(steps[:count])
        try:
            return importlib.import_module(name), count
        except ModuleNotFoundError as error:
            # Raise again if an import inside an existing module is missing, not a step of the path.
            if not (error.name and (name + ".").startswith(error.name + ".")):
                raise
    raise LookupError(f"there is no module {'.'.join(steps[:-1]) or steps[0]!r}")


def _attribute(holder: Any, steps: Sequence[str], number: int, kinds: tuple[type, ...]) -> Any:
    try:
        # A class's own entry is the plain function, which `swap` can restore later.
        own = vars(holder) if isinstance(holder, type) else {}
        return own[steps[number]] if steps[number] in own else getattr(holder, steps[number])
    except AttributeError:
        where = ".".join(steps[:number])
        names = _names(holder, kinds)
        near = difflib.get_close_matches(steps[number], names, 3) or names[:12]
        has = f"; it has {', '.join(near)}" if near else ""
        raise LookupError(f"{where} has no {steps[number]!r}{has}") from None


def _names(holder: Any, kinds: tuple[type, ...]) -> list[str]:
    """Return the public names of given kinds that a module or class defines, and submodules."""
    home = getattr(holder, "__name__", "")
    defined = [
        name
        for name, value in vars(holder).items()
        if isinstance(value, kinds) and (isinstance(holder, type) or value.__module__ == home)
    ]
    inside = [each.name for each in pkgutil.iter_modules(getattr(holder, "__path__", ()))]
    return sorted(name for name in {*defined, *inside} if not name.startswith("_"))


def _function(value: Any) -> FunctionType | None:
    """Return the plain function of a seam: without wrappers; of a class, its constructor."""
    for _ in range(8):
        if isinstance(value, FunctionType):
            return value
        if isinstance(value, type):
            value = vars(value).get("__init__")
        else:
            value = (
                getattr(value, "__wrapped__", None)
                or getattr(value, "func", None)
                or getattr(value, "__func__", None)
            )
    return None


def is_real(answer: Any, paths: Sequence[str]) -> bool:
    """Tell whether an answer is the real function of a seam, plain or wrapped, or from `use`."""
    if any(answer is one or (isinstance(answer, str) and answer == one) for one in given):
        return True
    mine = _function(answer)
    real = [_function(resolve(path)[2]) for path in paths]
    return mine is not None and any(r is mine or (r and r.__code__ is mine.__code__) for r in real)


def _refuse(*arguments: object, **named: object) -> None:
    # Runs in place of a real function, with that function's globals: use only builtins.
    raise RuntimeError("the runtime's own function is asked to answer; write it yourself")


@contextlib.contextmanager
def refusing(paths: Sequence[str]) -> Iterator[Mapping[str, FunctionType]]:
    """Make the real functions of seams raise; yield working copies of them for the oracle.

    The code of the function object is replaced, not the name, so that saved references to the
    function raise, too.
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
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def patched() -> list[str]:
    """Return the names in vklab's modules that a notebook has replaced by its own functions."""
    replaced = []
    for name, module in sorted(sys.modules.items()):
        if module is None or name.partition(".")[0] not in PACKAGES:
            continue
        for key, value in list(vars(module).items()):
            if _is_foreign(value):
                replaced.append(f"{name}.{key}")
            elif isinstance(value, type) and value.__module__ == name:
                inside = list(vars(value).items())
                replaced += [f"{name}.{key}.{k}" for k, v in inside if _is_foreign(v)]
    return replaced


def _is_foreign(value: Any) -> bool:
    return isinstance(value, DEFINED) and value.__module__ == "__main__"
