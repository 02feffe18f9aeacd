"""Process in which chat templates are rendered, with limits of time, memory and output.

A template is a program of a stranger: it may loop for ever or double a string forty times.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vklab.errors import ModelError, SetupError

try:
    import psutil
except ImportError:  # of the extra `llm`
    psutil = None

CHILD = Path(__file__).with_name("template_child.py")
REPAIR = "pip install 'vklab[llm]'"
START_S = 60.0
POLL_S = 0.01
LONGEST_CHARACTER = 24  # of JSON: a surrogate pair as two escapes, in each of two strings


class Limits:
    """Limits of one rendering.

    Args:
        time_s: seconds of a rendering, by the clock.
        memory_bytes: memory of the process, which takes some 30 MB before it does anything.
        characters: of the text.
    """

    def __init__(
        self, time_s: float = 5.0, memory_bytes: int = 512 << 20, characters: int = 1 << 22
    ) -> None:
        self.time_s, self.memory_bytes, self.characters = time_s, memory_bytes, characters


class Rendered(NamedTuple):
    """Text that a template makes.

    `own` is the text with a lone surrogate, which no text may hold, in place of every character
    that is not the template's own.
    """

    text: str
    own: str


class TemplateProcess:
    """Renders templates in a child process, which is started at the first use and after a limit.

    Args:
        limits: limits of a rendering.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._process: subprocess.Popen[str] | None = None
        self._finalizer: weakref.finalize | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child without waiting for it."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        if psutil is None:
            raise SetupError("chat templates need psutil, which is not installed", REPAIR)
        # -P: the modules beside the child's file must not hide others of the same name.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD), str(self.limits.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._process)
        self._is_ready = False

    def close(self) -> None:
        """End the child; another rendering starts a new one."""
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None

    def render(
        self, template: str, variables: Mapping[str, Any], own: Sequence[Sequence[str | int]] = ()
    ) -> Rendered:
        """Return the text that a template makes of some variables.

        Args:
            template: the template.
            variables: the variables, as JSON has them.
            own: paths of the strings in the variables that count as the template's own text.

        Raises ModelError for a template that fails or reaches a limit, and for variables that JSON
        cannot hold; SetupError where Jinja is not installed.
        """
        request = {
            "template": template,
            "variables": dict(variables),
            "own": own,
            "most_characters": self.limits.characters,
        }
        try:
            line = json.dumps(request)
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelError(
                f"a message or a variable of the chat template is no JSON: {error}; "
                "give text, numbers, lists and dictionaries"
            ) from error
        with self._lock:
            self.start()
            if not self._is_ready:
                self._greet()
            answer = self._ask(line)
        if "error" in answer:
            raise ModelError(
                f"the chat template {answer['error']}"
                if answer["error"].startswith(("makes", "needs"))
                else f"the chat template fails: {answer['error']}"
            )
        return Rendered(answer["text"], answer["own"])

    def _greet(self) -> None:
        """Wait until the child has loaded Jinja."""
        answer = self._ask(None, START_S)
        if "missing" in answer:
            self.close()
            raise SetupError(f"chat templates need Jinja ({answer['missing']})", REPAIR)
        self._is_ready = True

    def _ask(self, line: str | None, time_s: float | None = None) -> dict[str, Any]:
        """Send a line and return the answer; ModelError if a limit comes first."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        limit_s = self.limits.time_s if time_s is None else time_s
        watch = _Watch(process, limit_s, self.limits.memory_bytes)
        said = ""
        try:
            with contextlib.suppress(OSError):
                if line is not None:
                    process.stdin.write(line + "\n")
                    process.stdin.flush()
                said = process.stdout.readline(self.limits.characters * LONGEST_CHARACTER)
        except BaseException:  # an interrupt: the answer that is under way must not be the next one
            self.close()
            raise
        finally:
            watch.end()
        if said.endswith("\n"):
            answer: dict[str, Any] = json.loads(said)
            return answer
        self.close()
        raise ModelError(f"the chat template {watch.reason or 'ended its process'}")


class _Watch(threading.Thread):
    """Kills a process that takes too long or too much memory; `reason` says which it was."""

    def __init__(self, process: subprocess.Popen[str], time_s: float, memory_bytes: int) -> None:
        super().__init__(name="vklab template", daemon=True)
        self.reason = ""
        self._process, self._time_s, self._memory_bytes = process, time_s, memory_bytes
        self._done = threading.Event()
        self._measured = _resident(process.pid)
        self.start()

    def end(self) -> None:
        """Stop watching."""
        self._done.set()
        self.join()

    def run(self) -> None:
        """Poll time and memory until the answer is there or the process is killed."""
        start = time.monotonic()
        while not self._done.wait(POLL_S):
            if time.monotonic() - start > self._time_s:
                self.reason = f"takes more than {self._time_s:g} seconds"
            elif self._measured() > self._memory_bytes:
                self.reason = f"needs more than {self._memory_bytes >> 20} MiB of memory"
            if self.reason:
                self._process.kill()
                return


def _resident(pid: int) -> Any:
    """Return a function that measures the resident bytes of a process; 0 when it has ended.

    It stands beside the limit of the child's own, which Linux enforces, and other systems do not.
    """
    try:
        process = psutil.Process(pid)
    except psutil.Error:
        return lambda: 0

    def measure() -> int:
        try:
            return int(process.memory_info().rss)
        except psutil.Error:
            return 0

    return measure


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process that holds nothing of value, and collect it."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not yet written is of no use
                pipe.close()
    process.wait()
