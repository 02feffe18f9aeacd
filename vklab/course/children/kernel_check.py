"""Kernels in checks: dispatch a student's shader, and explain a failure in words."""

from __future__ import annotations

from collections.abc import Sequence

from vklab.course.children.run_kernel import Dispatched, Run, run_kernel
from vklab.course.definition.report import NotAttempted, Report, Stopped

__all__ = ["dispatch"]

WORDS = {
    "compile_error": "the kernel does not compile:\n{}",
    "refused": "{}",
    "mismatch": "the kernel does not fit its dispatch: {}",
    "timeout": "{}",
    "crashed": "{}",
    "no_device": "no device can be used: {}",
}


def dispatch(
    report: Report, text: str, runs: Sequence[Run], language: str = "", seconds: float = 5.0
) -> list[Dispatched]:
    """Dispatch a kernel on every input; end the check with a message if a dispatch fails.

    Args:
        report: the report of the check.
        text: the kernel, in GLSL or Slang.
        runs: one Run for each dispatch.
        language: glsl or slang; "" to tell by the text.
        seconds: time limit of each dispatch.
    """
    done = run_kernel(text, runs, language, seconds)
    for number, result in enumerate(done, 1):
        if result.status == "not_attempted":
            raise NotAttempted(result.message)
        if result.status != "ran":
            which = f"dispatch {number} of {len(done)}: " if number > 1 else ""
            raise Stopped(which + WORDS[result.status].format(result.message))
    return done
