"""Modules that are imported by their first use: optional folders, and functions few models need.

Only `plan/plan.py`, `plan/memory.py`, `runtime/session.py`, `runtime/loading.py` and
`graph/onnx_import.py` load optional folders. A `Door` is a method whose body is in another module,
mostly of an optional folder; `types.py` has some, too. What `function` returns is an entry of a
catalogue, such as the graph passes, of which one model on one device needs only some. Visited by
labs 10 and 12.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from vklab.errors import SetupError

__all__ = ["Door", "PropertyDoor", "function", "load", "require"]

Value = TypeVar("Value")


def load(name: str) -> Any:
    """Return a module by its dotted name in the package; None where its folder is not there.

    Raises SetupError where the module needs onnx, which is not installed.
    """
    full = f"vklab.{name}"
    try:
        return importlib.import_module(full)
    except ImportError as error:
        missing = error.name or ""
        if missing.startswith("onnx"):
            repair = "pip install onnx onnxruntime"
            raise SetupError(f"this needs onnx ({error})", repair) from error
        if not missing or not full.startswith(missing):
            raise
        return None


def require(name: str) -> Any:
    """Return a module as `load` does; SetupError where its folder is not there."""
    module = load(name)
    if module is None:
        folder = f"vklab.{name}".rpartition(".")[0].replace(".", "/")
        raise SetupError(f"this needs the folder {folder}, which is not there")
    return module


def function(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a module, and calls its function of that name.

    Args:
        module: the module's full name.
        name: the function's name, which the returned function bears, too.
    """

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    call.__name__, call.__module__ = name, module
    return call


class Door(Generic[Value]):
    """A method whose module, mostly of an optional folder, is loaded when the method is used.

    Args:
        module: the dotted name of the module in the package.
        name: a function of it, whose first parameter is the object.

    `Door[T]` tells type checkers that the method returns a T.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, instance: Any, owner: type) -> Callable[..., Value]:
        function: Any = getattr(require(self._module), self._name)
        return function if instance is None else types.MethodType(function, instance)


class PropertyDoor(Door[Value]):
    """A property of that kind: its function has no other parameter than the object."""

    def __get__(self, instance: Any, owner: type) -> Value:  # type: ignore[override]
        bound = super().__get__(instance, owner)
        return bound() if instance is not None else bound  # type: ignore[return-value]
