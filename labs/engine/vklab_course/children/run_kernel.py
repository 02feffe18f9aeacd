"""run_kernel: compile and dispatch a shader's text on the device in use, in a child process.

A kernel that does not compile, never ends, or loses the device gives a result with a message. Guard
words around every buffer detect writes out of bounds. Visited by lab 04.
"""

from __future__ import annotations

import json
import operator
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.children.child import BARE, Ended, run_child

__all__ = ["START_S", "Dispatched", "Job", "Run", "ending", "kernel_folder", "run_jobs",
           "run_kernel", "unsolved", "whole_numbers"]  # fmt: skip

ENDINGS = {"glsl": ".comp", "slang": ".slang"}
START_S = 20.0


@dataclass(frozen=True)
class Run:
    """One dispatch to make.

    Attributes:
        buffers: every storage buffer by its name in the shader, with its content before.
        workgroups: number of workgroups in x, y, z.
        push: push constants by name.
        constants: specialization constants by name.
    """

    buffers: Mapping[str, np.ndarray]
    workgroups: tuple[int, ...] = (1,)
    push: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Dispatched:
    """Result of one dispatch.

    Attributes:
        status: ran, compile_error, mismatch, timeout, crashed, no_device or not_attempted.
        buffers: every buffer's content afterwards.
        out_of_bounds: offsets in bytes of changed guard words, for each buffer that has some.
        message: the reason of a failure; for a kernel that ran, the names it never uses.
        unused: buffers and push constants that the kernel names and the compiler has removed.
        push_formats: the struct format of each remaining push constant: `I`, `f` ...
        push_offsets: its first byte.
    """

    status: str
    buffers: Mapping[str, np.ndarray] = field(default_factory=dict)
    out_of_bounds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    message: str = ""
    unused: tuple[str, ...] = ()
    push_formats: Mapping[str, str] = field(default_factory=dict)
    push_offsets: Mapping[str, int] = field(default_factory=dict)


def run_kernel(
    text: str,
    runs: Run | Sequence[Run],
    language: str = "",
    seconds: float = 10.0,
    device: int | str | None = None,
) -> list[Dispatched]:
    """Compile a shader once and dispatch it on each of the inputs, in a child process.

    Args:
        text: GLSL or Slang.
        runs: one Run, or several; those before a hang keep their results.
        language: glsl or slang; default: GLSL if the text has a #version line.
        seconds: time limit of each dispatch, without opening the device and compiling.
        device: as in `vklab.load`.
    """
    wanted = [runs] if isinstance(runs, Run) else list(runs)
    if stub := unsolved(text):
        return [stub] * len(wanted)
    kernel = f"kernel{ending(text, language)}"
    jobs = [Job(kernel, run) for run in wanted]
    return run_jobs({kernel: text.encode()}, jobs, seconds, device)


def unsolved(text: str) -> Dispatched | None:
    """Return the result of a kernel that is still the stub of an exercise, else None."""
    stub = re.search(r"^(?:(?!//).)*(#error Lab.*)$", text, re.M)  # not in a comment
    return Dispatched("not_attempted", message=stub[1].strip()) if stub else None


def ending(text: str, language: str = "") -> str:
    """Return the ending of a file with a kernel: its language's, or that of the text."""
    return ENDINGS[language or ("glsl" if re.search(r"^\s*#version", text, re.M) else "slang")]


@dataclass(frozen=True)
class Job:
    """One dispatch of one of several kernels.

    Attributes:
        kernel: name of the kernel's file, a text or a SPIR-V module.
        run: the dispatch.
        unused: buffers and push constants that the compiler removed; None to tell by the text.
        stop: a buffer and a word of it; where that is not 0 afterwards, the child ends.
    """

    kernel: str
    run: Run
    unused: tuple[str, ...] | None = None
    stop: tuple[str, int] | None = None


def run_jobs(
    files: Mapping[str, bytes],
    jobs: Sequence[Job],
    seconds: float,
    device: int | str | None,
    variables: Mapping[str, str] | None = None,
) -> list[Dispatched]:
    """Dispatch kernels one after another in one child process.

    Args:
        files: the kernels, by file name.
        jobs: the dispatches; those before a hang keep their results.
        seconds: time limit of each dispatch.
        device: as in `vklab.load`.
        variables: environment variables to set, such as those of a driver.
    """
    with tempfile.TemporaryDirectory(prefix="vklab-") as name:
        folder = kernel_folder(name)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        _write(folder, jobs, seconds, device)
        limit = START_S + seconds * len(jobs)
        ended = run_child(
            "vklab_course.children.kernel_child",
            [str(folder)],
            folder,
            limit,
            {BARE: "1", **(variables or {})},
        )
        return [_read(folder, number, ended) for number in range(len(jobs))]


def _write(folder: Path, jobs: Sequence[Job], seconds: float, device: int | str | None) -> None:
    listed = []
    for number, job in enumerate(jobs):
        run, names = job.run, list(job.run.buffers)
        for index, name in enumerate(names):
            np.save(folder / f"in-{number}-{index}.npy", np.ascontiguousarray(run.buffers[name]))
        listed.append(
            {
                "kernel": job.kernel,
                "unused": job.unused,
                "stop": job.stop,
                "buffers": names,
                "workgroups": whole_numbers(run.workgroups),
                "push": {k: _plain(v) for k, v in run.push.items()},
                "constants": {k: _plain(v) for k, v in run.constants.items()},
            }
        )
    facts = {"runs": listed, "seconds": seconds, "device": device}
    (folder / "job.json").write_text(json.dumps(facts), encoding="utf-8")


def kernel_folder(parent: str) -> Path:
    """Make the folder of a kernel's text; its name is part of the key of the compiler's cache."""
    folder = Path(parent) / "kernel"
    folder.mkdir()
    return folder


def whole_numbers(workgroups: Sequence[Any]) -> list[int]:
    """Return workgroups as plain ints; TypeError for numbers of another kind."""
    try:
        return [operator.index(count) for count in workgroups]
    except TypeError:
        given = workgroups if np.iterable(workgroups) else [workgroups]
        kinds = ", ".join(type(count).__name__ for count in given)
        raise TypeError(
            f"workgroups are ints in a tuple, got {words.short(workgroups)} (of type {kinds})"
        ) from None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _read(folder: Path, number: int, ended: Ended) -> Dispatched:
    failed = folder / "failed.json"
    path = folder / f"out-{number}.json"
    if path.is_file():
        facts = json.loads(path.read_text("utf-8"))
        buffers = {
            name: np.load(folder / f"out-{number}-{index}.npy", allow_pickle=False)
            for index, name in enumerate(facts["buffers"])
        }
        outside = {name: tuple(offsets) for name, offsets in facts["out_of_bounds"].items()}
        unused = tuple(facts["unused"])
        what = "it" if len(unused) == 1 else "them"
        said = f"{words.never_used(unused)}: the compiler has dropped {what}" if unused else ""
        return Dispatched(
            "ran", buffers, outside, said, unused, facts["push_formats"], facts["push_offsets"]
        )
    if failed.is_file():
        facts = json.loads(failed.read_text("utf-8"))
        return Dispatched(facts["status"], message=facts["message"])
    if ended.how == "timeout":
        return Dispatched("timeout", message="the kernel did not end; its process was stopped")
    last = ended.output.strip().splitlines()[-1:] or ["no message"]
    return Dispatched(
        "crashed", message=f"the process of the kernel ended (code {ended.code}): {last[0][:300]}"
    )
