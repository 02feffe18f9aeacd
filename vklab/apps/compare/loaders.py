"""Loading of packages that may be missing: the one way in which their absence becomes an error."""

from __future__ import annotations

import importlib
from types import ModuleType

from vklab.errors import SetupError


def load(module: str, words: str, install: str) -> ModuleType:
    """Import a module; raise SetupError if it, or a library of it, is missing or does not load.

    Args:
        module: its full name: of a package, or of a module of ours that imports one at its top.
        words: the package in the error's sentence.
        install: the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # a library that does not load
        raise SetupError(f"{words} cannot be imported ({error})", install) from error
