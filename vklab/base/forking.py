"""Processes made by `os.fork`: what they inherit from their parent and must not use.

A driver's state and all threads but one stay in the parent: a call into the driver, or a wait for
a lock that another thread held, would never end. Visited by lab 06.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

from vklab.errors import VklabError

SPAWN = (
    "load models in the child only, or start processes with multiprocessing.get_context('spawn')"
)
_first = _owner = object()


def in_child(call: Callable[[], None]) -> None:
    """Call a function in every child that `os.fork` makes, before its own code runs."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=call)


def lock() -> threading.RLock:
    """Return a lock for a module's global state: free in a child, whoever held it at the fork."""
    made = threading.RLock()
    in_child(made._at_fork_reinit)  # type: ignore[attr-defined]
    return made


def owner() -> object:
    """Return a token of this process, which its children do not share."""
    return _owner


def is_inherited(token: object) -> bool:
    """Tell whether a parent of this process, and not this process, took a token from `owner`."""
    return token is not _owner


def is_child() -> bool:
    """Tell whether `os.fork` made this process after it had imported vklab."""
    return _owner is not _first


def require_own(token: object, name: str) -> None:
    """Raise VklabError if what has this token, called `name`, was inherited from a parent."""
    if token is not _owner:
        raise VklabError(f"{name} belongs to the process that forked this one: {SPAWN}")


def skip_exit_handlers() -> None:
    """Let this process end without the exit handlers that its libraries have registered so far.

    In a child they wait for the parent's threads; beside a stuck device they free what its threads
    still use. Source: glibc manual, section 'Cleanups on Exit'.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        # Called in reverse order: streams are flushed, then the process ends with its status.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


def _set_owner() -> None:
    global _owner
    _owner = object()


in_child(_set_owner)
