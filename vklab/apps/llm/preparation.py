"""Preparation: record what later prompts will need while a person types the first one."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from vklab.errors import VklabError


class Preparation:
    """A thread that prepares a decoder; call `end` before anything else uses the decoder.

    Args:
        prepare: called on the thread with a function that tells whether to go on.
    """

    def __init__(self, prepare: Callable[[Callable[[], bool]], None]) -> None:
        self._prepare = prepare
        self._is_over = False
        context = contextvars.copy_context()  # with the switches of this thread
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._prepare(lambda: not self._is_over)
        except VklabError:  # whoever needs what is missing meets the same error
            return

    def end(self) -> None:
        """Wait until the thread has finished what it is at; a second call does nothing."""
        self._is_over = True
        self._thread.join()
