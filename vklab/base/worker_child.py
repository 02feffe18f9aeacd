"""Child process of a `worker.Worker`: reads calls from stdin, answers on a private copy of stdout.

`worker.Worker` runs it by `python -m`. Whatever a library prints goes to the log of the child and
cannot damage an answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

from vklab.base import endings, worker
from vklab.errors import ModelError, PlanError, SetupError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]
_given = resource.getrlimit(resource.RLIMIT_DATA) if resource else (0, 0)

SHOWN = 600  # characters of an error


def main() -> int:
    """Serve calls until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    with contextlib.suppress(OSError):  # Linux ends this process, not its parent, when memory ends
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    serve(os.fdopen(0, "rb", buffering=0), answers)
    # Exit handlers of a driver or of a runtime may hang or crash after the last answer.
    sys.stderr.flush()
    os._exit(0)


def serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each call with its value or with the parts of a Failure; close the state at the end.

    What has a method `close` in the state is closed.
    """
    state: dict[Any, Any] = {}
    while True:
        try:
            function, arguments, limits = worker.receive(calls)
        except EOFError:
            with contextlib.suppress(Exception):  # the last answer is given
                for value in state.values():
                    getattr(value, "close", bool)()
            return
        except Exception as error:  # a module of the call that cannot be imported
            worker.send(answers, worker.packed(worker.STARTED))
            worker.send(answers, worker.packed(("failure", describe(error))))
            continue
        worker.send(answers, worker.packed(worker.STARTED))
        _limit(*limits)
        try:
            answer = worker.packed(("value", function(state, *arguments)))
        except Exception as error:  # any error of any library, or of pickle
            answer = worker.packed(("failure", describe(error)))
        _limit(0, 0)
        worker.send(answers, answer)


def _limit(seconds: float, memory_bytes: int) -> None:
    """Let the system end this process after some time, and refuse it memory; 0 for no limit.

    The parent watches the time as well. Windows has neither limit.
    """
    if resource is None:
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    soft, hard = _given
    with contextlib.suppress(ValueError):  # the system's own limit is lower
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes or soft, hard))


def describe(error: Exception) -> tuple[str, str, str]:
    """Return status, reason and repair of an error; plain text, as its class may be unknown."""
    text = endings.one_line(error, SHOWN)
    if isinstance(error, worker.Failure):
        return error.status, error.reason, error.install
    if isinstance(error, (ModelError, PlanError)):
        return "refused", text, ""
    if isinstance(error, (SetupError, ModuleNotFoundError)):
        return "absent", text.split(" to repair: ")[0], getattr(error, "repair", "")
    return "failed", f"{type(error).__name__}: {text}", ""


if __name__ == "__main__":
    sys.exit(main())
