"""Late imports: attributes of modules that are imported when they are used.

A `Door` is a method or property whose body is in another module: on `Session`, and where plans and
devices draw themselves. Rows of the catalogue are the other late imports. Visited by lab 12.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from vklab.errors import SetupError

Value = TypeVar("Value")


def attribute(module: str, name: str) -> Any:
    """Return an attribute of a module, which is imported.

    Raises SetupError where the module needs onnx, which is not installed.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        if (error.name or "").startswith("onnx"):
            repair = "pip install onnx onnxruntime"
            raise SetupError(f"this needs onnx ({error})", repair) from error
        raise


class Door(Generic[Value]):
    """A method whose module is imported when the method is used.

    Args:
        module: the full name of the module.
        name: a function of it, whose first parameter is the object.

    `Door[T]` tells type checkers that the method returns a T.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, instance: Any, owner: type) -> Callable[..., Value]:
        function: Any = attribute(self._module, self._name)
        return function if instance is None else types.MethodType(function, instance)


class PropertyDoor(Door[Value]):
    """A property whose function has no parameter but the object."""

    def __get__(self, instance: Any, owner: type) -> Value:  # type: ignore[override]
        bound = super().__get__(instance, owner)
        return bound() if instance is not None else bound  # type: ignore[return-value]
