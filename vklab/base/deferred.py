"""Functions whose files are loaded by their first call.

They are the entries of a catalogue, such as the graph passes, of which one model on one device
needs only some, or single functions that few models need. Visited by lab 10.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["function"]


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
