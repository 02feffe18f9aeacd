"""Names of modules that are in another folder now: an import by the old name gives that module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class Forward:
    """A finder and loader that gives a module under a second name, as the same object.

    Args:
        new_name: returns the full name of the module that an import of a full name means; "" for
            names that mean themselves.
    """

    def __init__(self, new_name: Callable[[str], str]) -> None:
        self.new_name = new_name

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return how to load a name that another module has now; None for all others."""
        new = self.new_name(name)
        return ModuleSpec(name, self) if new and find_spec(new) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make the module, whose place `exec_module` gives to the other."""

    def exec_module(self, module: ModuleType) -> None:
        """Import the module that is meant, and put it where the import looks for the name."""
        sys.modules[module.__name__] = importlib.import_module(self.new_name(module.__name__))


def current(name: str) -> str:
    """Return the name that a module, or a name in it, has now: the given one if it never moved."""
    finders = [finder for finder in sys.meta_path if isinstance(finder, Forward)]
    return next(filter(None, (finder.new_name(name) for finder in finders)), name)


def install(new_name: Callable[[str], str]) -> None:
    """Forward names from now on, before a folder of the old name that holds no code is found."""
    sys.meta_path.insert(0, Forward(new_name))
