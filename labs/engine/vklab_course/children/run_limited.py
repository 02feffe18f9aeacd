"""run_limited: call a function that may hang or crash, in a child process with a time limit.

The function is sent with everything that it uses from the notebook. The child is a fresh
interpreter, so a crash, an endless loop in native code or `os._exit` ends only the child.
"""

from __future__ import annotations

import inspect
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from vklab_course import seam
from vklab_course.children.child import Ended, run_child

__all__ = ["Outcome", "run_limited"]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a call.

    Attributes:
        status: returned, not_attempted, raised, timeout, too_much_output or crashed.
        value: the returned value.
        message: for every status but returned, the reason in one line.
        output: the printed text.
    """

    status: str
    value: Any = None
    message: str = ""
    output: str = ""


def run_limited(
    function: Callable[..., Any], *arguments: Any, seconds: float = 10.0,
    variables: Mapping[str, str] | None = None,
) -> Outcome:  # fmt: skip
    """Call `function(*arguments)` in a fresh interpreter; a crash there raises nothing here.

    Args:
        function: the function; its module or notebook cell is sent with it.
        arguments: its arguments.
        seconds: time limit.
        variables: environment variables of the child, such as those that name drivers.
    """
    with tempfile.TemporaryDirectory(prefix="vklab-") as name:
        folder = Path(name)
        try:
            with _by_value(function):
                (folder / "call").write_bytes(cloudpickle.dumps((function, arguments)))
        except Exception as error:
            return Outcome("raised", message=f"cannot be sent to a process of its own: {error}")
        ended = run_child(
            "vklab_course.children.limited_child", [str(folder)], folder, seconds, variables
        )
        result = folder / "result"
        if ended.how == "exited" and result.is_file():
            status, value, message = cloudpickle.loads(result.read_bytes())
            return Outcome(status, value, message, ended.output)
        status, message = _how(ended, seconds)
        return Outcome(status, message=message, output=ended.output)


def _how(ended: Ended, seconds: float) -> tuple[str, str]:
    if ended.how == "timeout":
        return "timeout", f"did not end within {seconds:g} s; its process was stopped"
    if ended.how == "too_much_output":
        return "too_much_output", "printed without end; its process was stopped"
    if ended.code < 0:
        return "crashed", f"crashed its process (signal {signal.Signals(-ended.code).name})"
    return "crashed", f"ended its process with code {ended.code}"


@contextmanager
def _by_value(function: Callable[..., Any]) -> Iterator[None]:
    """Send functions with their code if the child cannot import their file (tests, answers)."""
    module = inspect.getmodule(function)
    own = module is not None and module.__name__.split(".")[0] in (*seam.PACKAGES, "__main__")
    file = getattr(module, "__file__", None) or ""
    if own or module is None or module.__name__ not in sys.modules or "site-packages" in file:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
