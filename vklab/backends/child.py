"""Child process of one backend: reads calls from stdin and answers on a private copy of stdout.

Run as `python -m vklab.backends.child` by `process.Worker`. Whatever a runtime prints goes to the
log of the child and cannot damage an answer.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any

from vklab.backends import process
from vklab.backends.backend import Refused
from vklab.errors import ModelError, PlanError, SetupError

__all__ = ["describe", "main", "serve"]

SHOWN = 600  # characters of an error


def main() -> int:
    """Serve calls until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
    answers.flush()
    # Exit handlers of a driver or of a runtime may hang or crash after the last answer.
    sys.stderr.flush()
    os._exit(0)


def serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each call with its value or with the parts of a Failure."""
    state: dict[str, Any] = {}
    while True:
        try:
            function, arguments = process.receive(calls)
        except EOFError:
            return
        except Exception as error:  # a module of the call that cannot be imported
            process.send(answers, process.STARTED)
            process.send(answers, ("failure", describe(error)))
            continue
        process.send(answers, process.STARTED)
        try:
            answer: tuple[str, Any] = ("value", function(state, *arguments))
        except Exception as error:  # any error of any runtime
            answer = ("failure", describe(error))
        process.send(answers, answer)


def describe(error: Exception) -> tuple[str, str, str]:
    """Return status, reason and repair of an error; plain text, as its class may be unknown."""
    text = " ".join(str(error).split())[:SHOWN] or type(error).__name__
    if isinstance(error, process.Failure):
        return error.status, error.reason, error.install
    if isinstance(error, (Refused, ModelError, PlanError)):
        return "refused", text, ""
    if isinstance(error, (SetupError, ModuleNotFoundError)):
        return "absent", text.split(" to repair: ")[0], getattr(error, "repair", "")
    return "failed", f"{type(error).__name__}: {text}", ""


if __name__ == "__main__":
    sys.exit(main())
