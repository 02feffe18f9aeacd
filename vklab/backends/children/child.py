"""Child process of one backend: reads calls from stdin and answers on a private copy of stdout.

`process.Worker` runs it by `python -m`. Whatever a runtime prints goes to the log of the child and
cannot damage an answer.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, Any

from vklab.backends.backend import Refused, one_line
from vklab.backends.children import process, tasks
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
    """Answer each call with its value or with the parts of a Failure; free the model at the end."""
    state: dict[str, Any] = {}
    while True:
        try:
            function, arguments = process.receive(calls)
        except EOFError:
            with contextlib.suppress(Exception):  # the last answer is given
                tasks.close(state)
            return
        except Exception as error:  # a module of the call that cannot be imported
            process.send(answers, process.STARTED)
            process.send(answers, ("failure", describe(error)))
            continue
        process.send(answers, process.STARTED)
        try:
            answer = process.packed(("value", function(state, *arguments)))
        except Exception as error:  # any error of any runtime, or of pickle
            answer = process.packed(("failure", describe(error)))
        answers.write(answer)
        answers.flush()


def describe(error: Exception) -> tuple[str, str, str]:
    """Return status, reason and repair of an error; plain text, as its class may be unknown."""
    text = one_line(error, SHOWN)
    if isinstance(error, process.Failure):
        return error.status, error.reason, error.install
    if isinstance(error, (Refused, ModelError, PlanError)):
        return "refused", text, ""
    if isinstance(error, (SetupError, ModuleNotFoundError)):
        return "absent", text.split(" to repair: ")[0], getattr(error, "repair", "")
    return "failed", f"{type(error).__name__}: {text}", ""


if __name__ == "__main__":
    sys.exit(main())
